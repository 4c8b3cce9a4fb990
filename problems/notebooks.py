"""Facts about an object as lines of text, and tables that notebooks show for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from html import escape
from typing import Any, ClassVar


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a title; cells are escaped."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    )
    return (
        f'<table class="privopt"><caption>{escape(title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """Return a table of names and values."""
    return html_table(title, ("", ""), facts.items())


def html_fields(title: str, record: Any) -> str:
    """Return a table of the fields of a dataclass; a value that is a class is shown by its name."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    shown = {name: value.__name__ if isinstance(value, type) else value for name, value in values.items()}
    return html_facts(title, shown)


def text_of(facts: Mapping[str, object]) -> str:
    """Return a line for each fact."""
    return "\n".join(f"{name}: {value}" for name, value in facts.items())


class PlanInWords(ABC):
    """Base of plans that are printed as a line for each fact, and shown by notebooks as a table."""

    title: ClassVar[str]

    @property
    @abstractmethod
    def facts(self) -> Mapping[str, str]:
        """The plan in words, by name of the fact."""

    def __str__(self) -> str:
        return text_of(self.facts)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_facts(self.title, self.facts)

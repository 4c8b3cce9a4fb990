"""Names of columns for people: labels and units, which are printed and never compared with data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from privopt.problems.arguments import told
from privopt.problems.errors import SchemaError

KEYS = ("label", "unit")


@dataclass(frozen=True)
class Display:
    """Label and unit of a column, None if they are not declared."""

    label: str | None = None
    unit: str | None = None

    @classmethod
    def of(cls, name: str, label: Any = None, unit: Any = None) -> Self:
        """Check the keys ``label`` and ``unit`` of column ``name``.

        Raises:
            SchemaError: no text of one line.
        """
        for key, value in (("label", label), ("unit", unit)):
            if value is not None and not (isinstance(value, str) and value.strip() and value.isprintable()):
                raise SchemaError(f"column {name!r}: {key} must be a text of one line; got {told(value)}")
        return cls(label, unit)

    def title(self, name: str) -> str:
        """Return the column's name for people: its label, or else its name, and the unit in brackets."""
        shown = name if self.label is None else self.label
        return shown if self.unit is None else f"{shown} ({self.unit})"

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of a schema file."""
        return {k: v for k, v in (("label", self.label), ("unit", self.unit)) if v is not None}


UNNAMED = Display()


def displays_of(names: list[str], labels: Mapping[str, str], units: Mapping[str, str]) -> tuple[Display, ...]:
    """Return the display of each column.

    Raises:
        SchemaError: labels or units of columns that are not declared, or that are no text.
    """
    if unknown := sorted({*labels, *units} - set(names)):
        raise SchemaError(f"labels or units of columns that are not declared: {unknown}")
    return tuple(Display.of(name, labels.get(name), units.get(name)) for name in names)

"""Several cards of one private model side by side, for people to choose from: Markdown, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from string import ascii_uppercase
from typing import Any

from privopt.mechanisms.estimators.card import Card, CardColumn, markdown_cell, number
from privopt.mechanisms.estimators.class_card import ClassCard, ClassColumn
from privopt.mechanisms.estimators.page import breakable, for_experts, promises
from privopt.mechanisms.estimators.page_frame import framed

# Advice in every output: choosing a card costs no privacy, but trying cards on the records again would.
ADVICE = (
    "All of these cards follow from one private model, so any of them may be chosen for its meaning: which "
    "questions it asks, and how easily its points add up. The first is the one that was released; "
    "the others are near the same model, and no more accurate on average. Trying them on records again to "
    "choose one is not covered by the guarantee: that needs a budget of its own (privopt evaluate)."
)


_NONE = "\N{EN DASH}"
_BESIDE = " / "  # between the points of several classes


@dataclass(frozen=True)
class CardChoice:
    """Cards near one private model; the first is the released card.

    Attributes:
        cards: the cards, without risks, as the released risks are about the first card only.
        distances: the distance of each card to the model, as a share of the distance of a card without
            points.
    """

    cards: tuple[Card | ClassCard, ...]
    distances: tuple[float, ...]

    @property
    def letters(self) -> tuple[str, ...]:
        """A letter for each card, or a number if there are many cards."""
        many = len(self.cards) > len(ascii_uppercase)
        return tuple(str(k + 1) if many else ascii_uppercase[k] for k in range(len(self.cards)))

    @property
    def left_out(self) -> tuple[tuple[str, ...], ...]:
        """For each card, the names of the columns that have points on the first card but not on this card."""
        return tuple(_missing(self.cards[0], card) for card in self.cards)

    @property
    def added(self) -> tuple[tuple[str, ...], ...]:
        """For each card, the names of the columns that have points on this card but not on the first card."""
        return tuple(_missing(card, self.cards[0]) for card in self.cards)

    def facts(self) -> list[tuple[str, ...]]:
        """Return lines that compare the cards: the name of a fact, then its text for each card."""
        return [
            ("columns", *(str(len(card.columns)) for card in self.cards)),
            (f"columns of {self.letters[0]} left out", *(", ".join(own) or _NONE for own in self.left_out)),
            (f"columns not in {self.letters[0]}", *(", ".join(own) or _NONE for own in self.added)),
            ("distance to the model", *(f"{distance:.0%}" for distance in self.distances)),
            ("start with", *(_start(card) for card in self.cards)),
            *self._totals(),
        ]

    def _totals(self) -> Iterator[tuple[str, ...]]:
        """Yield lines about the sums of points of cards of two classes."""
        cards = [card for card in self.cards if isinstance(card, Card)]
        if cards:
            yield ("points from", *(number(card.reach[0]) for card in cards))
            yield ("points to", *(number(card.reach[1]) for card in cards))
            yield (f"{cards[0].names[1]} at", *(card.enough for card in cards))

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about all cards: the order of classes in cells of several points, and the constraints."""
        first = self.cards[0]
        if isinstance(first, Card):
            return (first.constrained,) if first.constrained else ()
        return (f"Points are those of {', '.join(first.names)}, in this order: {first.rule}.",)

    def lines(self) -> Iterator[tuple[str, ...]]:
        """Yield a column, a level, and its points on each card, for columns with points on any card."""
        found: dict[str, list[CardColumn | ClassColumn | None]] = {}
        for k, card in enumerate(self.cards):
            for column in card.columns:
                found.setdefault(column.shown, [None] * len(self.cards))[k] = column
        for name, columns in found.items():
            points = [
                {} if column is None else {level: _BESIDE.join(own) for level, *own in column.lines()}
                for column in columns
            ]
            levels = dict.fromkeys(level for own in points for level in own)
            for level in levels:
                yield (name, level, *(own.get(level, self._nothing) for own in points))

    @property
    def _nothing(self) -> str:
        """The text for a column without points on a card."""
        first = self.cards[0]
        return "0" if isinstance(first, Card) else _BESIDE.join("0" for _ in first.classes)

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        rows = zip(self.cards, self.distances, self.left_out, strict=True)
        return {
            "advice": ADVICE,
            "cards": [{**card.to_dict(), "distance": d, "left_out": list(names)} for card, d, names in rows],
        }

    def to_markdown(self) -> str:
        """Return the comparison as tables in Markdown."""
        heads = " | ".join(self.letters)
        aligned = "|".join(["---:"] * len(self.cards))
        found = [ADVICE, "", f"| | {heads} |", f"|---|{aligned}|"]
        found += [f"| {' | '.join(map(markdown_cell, line))} |" for line in self.facts()]
        found += ["", f"| column | level | {heads} |", f"|---|---|{aligned}|"]
        found += [f"| {' | '.join(map(markdown_cell, line))} |" for line in self.lines()]
        found += [text for note in self.notes for text in ("", markdown_cell(note))]
        found += ["", f"Privacy: {markdown_cell(str(self.cards[0].spend))}, for all cards together."]
        return "\n".join(found) + "\n"

    def _repr_html_(self) -> str:
        """Return the tables for notebooks."""
        return _table(("", *self.letters), self.facts()) + _table(
            ("column", "level", *self.letters), self.lines()
        )


def _start(card: Card | ClassCard) -> str:
    return number(card.base) if isinstance(card, Card) else _BESIDE.join(map(number, card.bases))


def _missing(card: Card | ClassCard, other: Card | ClassCard) -> tuple[str, ...]:
    """Return the names of the columns with points on a card and none on another card."""
    there = {column.name for column in other.columns}
    return tuple(column.shown for column in card.columns if column.name not in there)


def choice_page(choice: CardChoice, *, title: str = "") -> str:
    """Render several cards side by side as HTML, at no privacy cost.

    Args:
        choice: the cards.
        title: a heading; by default it names the positive class, or all of several classes.
    """
    first = choice.cards[0]
    facts = _table(("", *choice.letters), choice.facts())
    points = _table(("column", "level", *choice.letters), choice.lines())
    notes = "".join(f'\n<p class="note">{escape(note)}</p>' for note in choice.notes)
    about = first.names[1] if isinstance(first, Card) else ", ".join(first.names)
    n_records = first.n_records if isinstance(first, Card) else None
    numbers = for_experts(first.spend, {"cards": json.dumps(choice.to_dict()["cards"], default=str)})
    return framed(
        title or f"Scorecards to choose from: {about}",
        escape(ADVICE),
        f'<section id="compared">\n<h2>Compared</h2>\n{facts}\n</section>\n'
        f'<section id="points">\n<h2>Points</h2>\n{points}{notes}\n</section>',
        promises(first.spend, n_records, None, False),
        f"{numbers}. All cards together are one release.",
        filled=False,
    )


def _table(heads: tuple[str, ...], lines: Any) -> str:
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    texts = sum(text in ("", "column", "level") for text in heads)
    rows = [
        "".join(
            f"<td>{breakable(text)}</td>" if k < texts else f'<td class="n">{escape(text)}</td>'
            for k, text in enumerate(line)
        )
        for line in lines
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"

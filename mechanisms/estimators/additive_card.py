"""Printable sum of a scorecard and a decision tree: Markdown, JSON, and a page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from string import Template
from typing import Any

from privopt.mechanisms.estimators.card import Card, markdown_cell, number
from privopt.mechanisms.estimators.page import breakable, for_experts, promises, quality
from privopt.mechanisms.estimators.page_frame import framed
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.estimators.tree_page import picture_section
from privopt.mechanisms.evaluation.metrics import Evaluation
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.notebooks import html_table


@dataclass(frozen=True, eq=False)
class AdditiveCard:
    """A released scorecard and tree for printing.

    Attributes:
        card, tree: the printable card and tree.
        unit: the score of a point.
        spend: the privacy spend of card and tree.
    """

    card: Card
    tree: TreeCard
    unit: float
    spend: PrivacySpend

    @property
    def how(self) -> str:
        """The decision rule in words."""
        start = f"starting with {number(self.card.base)}, " if self.card.base else ""
        negative, positive = self.card.names
        shift = f" minus {number(self.card.threshold)}" if self.card.threshold else ""
        return (
            f"Add up the points of the card ({start}one level of every column){shift}, and multiply by "
            f"{self.unit:.4g}. Follow the tree: add 1 where it says {positive}, take off 1 where it says "
            f"{negative}. The higher the score, the likelier {positive}; above 0 it is predicted."
        )

    def _repr_html_(self) -> str:
        """Return the points and the picture of the tree for notebooks."""
        rows = [(column.shown, *line) for column in self.card.columns for line in column.lines()]
        return html_table(self.how, ("column", "level", "points"), rows) + self.tree._repr_html_()

    def to_markdown(self) -> str:
        """Return the joint rule, the points as a table, and the tree as a nested list."""
        lines = [markdown_cell(self.how), "", "| column | level | points |", "|---|---|---:|"]
        for column in self.card.columns:
            name = markdown_cell(column.shown)
            lines += [f"| {name} | {markdown_cell(level)} | {points} |" for level, points in column.lines()]
        lines.append("")
        for row in self.tree.rows():
            says = "" if row.leaf is None else f": **{markdown_cell(self.tree.names[row.leaf.label])}**"
            lines.append(f"{'  ' * row.depth}- {markdown_cell(row.condition)}{says}")
        lines += ["", f"Privacy: {markdown_cell(str(self.spend))}."]
        return "\n".join(lines) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "kind": "card and tree",
            "rule": self.how,
            "unit": self.unit,
            "card": self.card.to_dict(),
            "tree": self.tree.to_dict(),
            "spend": self.spend.to_dict(),
        }


_POINTS = Template("""<section id="points">
<h2>The card</h2>
<table><thead><tr><th>column</th><th>level</th><th>points</th></tr></thead>
<tbody>
$rows
</tbody></table>
</section>""")


def additive_page(
    card: AdditiveCard, evaluation: Evaluation | None = None, *, seen: bool = False, title: str = ""
) -> str:
    """Render card and tree as HTML: rule, points, picture, accuracy and privacy guarantee; no privacy cost.

    Args:
        card: the model to print.
        evaluation: a released evaluation, for metrics and the ROC curve.
        seen: whether ``evaluation`` is known to be on training records.
        title: a heading.
    """
    rows = "\n".join(
        f"<tr><td>{breakable(column.shown)}</td><td>{escape(level)}</td>"
        f'<td class="n">{escape(points)}</td></tr>'
        for column in card.card.columns
        for level, points in column.lines()
    )
    found = "" if evaluation is None else quality(evaluation, seen, "model")
    return framed(
        title or f"Card and tree: {card.card.names[1]}",
        escape(card.how),
        f"{_POINTS.substitute(rows=rows)}\n{picture_section(card.tree)}\n{found}",
        promises(card.spend, None, evaluation, seen, "model"),
        for_experts(card.spend, card.to_dict()),
    )

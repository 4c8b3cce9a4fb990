"""Printable trees and rule lists: lines of text, Markdown, JSON and a picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from textwrap import TextWrapper
from typing import Any, NamedTuple

import numpy as np

from privopt.mechanisms.estimators.branches import Branch, Leaf, Node, leaves_of
from privopt.mechanisms.estimators.card import class_name, markdown_cell
from privopt.mechanisms.evaluation.leaves import LeafRisks
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.discrete.predicates import Bools
from privopt.problems.tables.predicates import Predicates

# Sizes of the picture in SVG units, which are about pixels on a phone.
_WIDTH, _STEP, _LINE, _PAD, _PILL = 420, 18, 16, 7, 120
_LETTER, _BOLD_LETTER = 6.6, 7.8  # approximate widths of a character


# Colours of the picture; _COLOURS are the colours of the classes, in order. A style sheet may change them.
_INK, _SOFT, _COLOURS = "#1c2430", "#5b6675", ("#cfdfea", "#e9cbbf", "#fff3b0", "#c9b0e0")

# For each column asked about so far, whether a record may have each of its codes.
Codes = dict[int, Bools]


class _AtSeparators(TextWrapper):
    """Text wrapper that breaks a long name after a separator rather than within a word."""

    def _split(self, text: str) -> list[str]:
        return [part for part in re.split(r"(\s+)|(?<=[_./:-])(?=\w)", text) if part]


def _wrapped(text: str, width: int) -> list[str]:
    return _AtSeparators(width).wrap(text) or [""]


class Row(NamedTuple):
    """Line of a printed model: its depth, a condition, and the leaf that follows, if any."""

    depth: int
    condition: str
    leaf: Leaf | None


@dataclass(frozen=True, eq=False)
class TreeCard:
    """A released tree or rule list for printing.

    Attributes:
        branches: the model.
        predicates: the predicates of its questions.
        classes: the labels.
        is_list: whether it is a rule list.
        risks: shares of the classes by leaf, or None.
        spend: the privacy spend of the model, including its risks.
        n_records: the number of training records, or None if unknown.
        target: the name of the label column, or "" if unknown.
    """

    branches: Node
    predicates: Predicates
    classes: tuple[Any, ...]
    is_list: bool
    risks: LeafRisks | None
    spend: PrivacySpend
    n_records: int | None = None
    target: str = ""

    @property
    def noun(self) -> str:
        return "rule list" if self.is_list else "tree"

    @property
    def names(self) -> tuple[str, ...]:
        """Readable names of the classes."""
        return tuple(class_name(label, self.target) for label in self.classes)

    @property
    def warning(self) -> str:
        """A warning if the model predicts the same class for every record; otherwise empty."""
        labels = {leaf.label for leaf in leaves_of(self.branches)}
        if len(labels) > 1:
            return ""
        return (
            f"This {self.noun} predicts {self.names[labels.pop()]} for every record. A larger weight of the "
            "rarer class (class_weight) may help."
        )

    def rows(self) -> list[Row]:
        """Return the model line by line."""
        if isinstance(self.branches, Leaf):
            return [Row(0, "every record", self.branches)]
        return list(self._list_rows() if self.is_list else self._tree_rows(self.branches, 0, {}))

    def _condition(self, node: Branch, answer: bool, known: Codes) -> tuple[str, Codes]:
        """Return the condition of one side of a branch in words, and the codes that are possible there."""
        asked = self.predicates.questions[node.question]
        possible = known.get(asked.column, np.ones(len(asked.truths), dtype=bool))
        return asked.text(answer, possible), {**known, asked.column: possible & (asked.truths == answer)}

    def _tree_rows(self, node: Branch, depth: int, known: Codes) -> Iterator[Row]:
        for answer, child in ((node.answer, node.then), (not node.answer, node.otherwise)):
            condition, here = self._condition(node, answer, known)
            yield Row(depth, condition, child if isinstance(child, Leaf) else None)
            if isinstance(child, Branch):
                yield from self._tree_rows(child, depth + 1, here)

    def _list_rows(self) -> Iterator[Row]:
        node, word = self.branches, "if"
        known: Codes = {}
        while isinstance(node, Branch):
            rule, answer, rest = node.then, node.answer, node.otherwise
            if isinstance(rule, Branch):  # a rule was dropped by pruning: the list goes on where its leaf was
                rule, answer, rest = rest, not answer, rule
            assert isinstance(rule, Leaf)
            yield Row(0, f"{word} {self._condition(node, answer, known)[0]}", rule)
            known = self._condition(node, not answer, known)[1]
            node, word = rest, "else if"
        yield Row(0, "otherwise", node)

    def _says(self, leaf: Leaf) -> str:
        """Describe a prediction, with the probability that it is right and its interval."""
        if self.risks is None:
            return self.names[leaf.label]
        share, low, high = (
            table[leaf.number, leaf.label] for table in (self.risks.shares, self.risks.lows, self.risks.highs)
        )
        return f"{self.names[leaf.label]} ({share:.1%}, {low:.1%} to {high:.1%})"

    def lines(self) -> list[str]:
        """Return indented plain text."""
        return [
            "  " * row.depth + row.condition + ("" if row.leaf is None else f": {self.names[row.leaf.label]}")
            for row in self.rows()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON."""
        return {
            "kind": self.noun,
            "classes": list(self.classes),
            **({"target": self.target} if self.target else {}),
            "model": self._nested(self.branches, {}),
            "risks": None if self.risks is None else self.risk_rows(),
            "spend": self.spend.to_dict(),
        }

    def _nested(self, node: Node, known: Codes) -> dict[str, Any]:
        if isinstance(node, Leaf):
            return {"leaf": node.number, "prediction": self.classes[node.label]}
        question = self.predicates.questions[node.question]
        condition, then = self._condition(node, node.answer, known)
        otherwise = self._condition(node, not node.answer, known)[1]
        return {
            "column": question.name,
            "kind": question.kind,
            "value": question.value,
            "if": condition,
            "then": self._nested(node.then, then),
            "otherwise": self._nested(node.otherwise, otherwise),
        }

    def risk_rows(self) -> list[dict[str, Any]]:
        """Return the rows of ``risks`` for JSON: leaf, prediction, share of the records, and class shares
        with intervals.
        """
        assert self.risks is not None
        risks = self.risks
        return [
            {
                "leaf": leaf.number,
                "prediction": self.classes[leaf.label],
                "size": float(risks.sizes[leaf.number]),
                "shares": [
                    {"class": label, "share": float(share), "low": float(low), "high": float(high)}
                    for label, share, low, high in zip(
                        self.classes,
                        risks.shares[leaf.number],
                        risks.lows[leaf.number],
                        risks.highs[leaf.number],
                        strict=True,
                    )
                ],
            }
            for leaf in leaves_of(self.branches)
        ]

    def to_markdown(self) -> str:
        """Return a nested list in Markdown; with risks, the share of each prediction."""
        lines = [markdown_cell(self.warning), ""] if self.warning else []
        for row in self.rows():
            says = "" if row.leaf is None else f": **{markdown_cell(self._says(row.leaf))}**"
            lines.append(f"{'  ' * row.depth}- {markdown_cell(row.condition)}{says}")
        if self.risks is not None:
            lines += [
                "",
                "In brackets: the share of records in this leaf that have the predicted class, and its "
                f"{self.risks.confidence:.0%} interval, which includes the noise that was added for privacy.",
            ]
        lines += ["", f"Privacy: {markdown_cell(str(self.spend))}."]
        return "\n".join(lines) + "\n"

    def _repr_html_(self) -> str:
        """Return the picture for notebooks."""
        return f'<div style="max-width:40em">{self.to_svg()}</div>'

    def to_svg(self) -> str:
        """Return the model as an SVG picture: indented lines of conditions, with predictions at the right."""
        parts, top, open_at = [], 4.0, list[float]()
        for row in self.rows():
            left = _PAD + _STEP * row.depth
            room = _WIDTH - left - _PAD - (_PILL if row.leaf is not None else 0)
            text = _wrapped(row.condition, max(8, int(room / _LETTER)))
            height = _LINE * len(text) + 2 * _PAD
            del open_at[row.depth + 1 :]
            if row.depth:
                start, middle = open_at[row.depth - 1], top + height / 2
                x = left - _STEP / 2
                line = f'd="M{x:g} {start:g} V{middle:g} H{left:g}" fill="none" stroke="{_SOFT}"'
                parts.append(f'<path class="twig" {line}/>')
            spans = "".join(
                f'<tspan x="{left + 4:g}" dy="{_LINE if k else 0}">{escape(line)}</tspan>'
                for k, line in enumerate(text)
            )
            parts.append(f'<text x="{left + 4:g}" y="{top + _PAD + 12:g}" class="ask">{spans}</text>')
            if row.leaf is not None:
                parts.append(self._pill(row.leaf, top, height))
            open_at[row.depth :] = [top + height - _PAD]
            top += height
        body = "\n".join(parts)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {top + 4:g}" role="img" '
            f'class="tree" font-family="sans-serif" font-size="12" fill="{_INK}" '
            f'aria-label="{escape(self.noun)}">\n{body}\n</svg>'
        )

    def _pill(self, leaf: Leaf, top: float, height: float) -> str:
        """Draw a prediction, with a bar for the share of its class."""
        x, y, h = _WIDTH - _PILL, top + 3, height - 6
        bar = ""
        if self.risks is not None:
            wide = (_PILL - 4) * float(self.risks.shares[leaf.number, leaf.label])
            bar = f'<rect x="{x:g}" y="{y + h - 4:g}" width="{wide:.1f}" height="4" class="share" '
            bar += f'fill="{_INK}" opacity="0.55"/>'
        share = "" if self.risks is None else f" {self.risks.shares[leaf.number, leaf.label]:.0%}"
        label = self.classes[leaf.label]
        name = label if isinstance(label, str) else self.names[leaf.label]
        most = int((_PILL - 12) / _BOLD_LETTER) - len(share)
        shown = name if len(name) <= most else name[: max(1, most - 1)] + "\N{HORIZONTAL ELLIPSIS}"
        return (
            f'<rect x="{x:g}" y="{y:g}" width="{_PILL - 4}" height="{h:g}" rx="5" '
            f'class="leaf c{leaf.label % 4}" fill="{_COLOURS[leaf.label % 4]}"/>'
            f'{bar}<text x="{x + 6:g}" y="{y + h / 2 + 4:g}" class="says" font-weight="600">'
            f"{escape(shown + share)}"
            f"<title>{escape(self._says(leaf))}</title></text>"
        )

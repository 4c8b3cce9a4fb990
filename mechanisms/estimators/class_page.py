"""Scorecards of several classes as self-contained HTML pages for screens, phones and print."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from string import Template, ascii_uppercase

from privopt.mechanisms.estimators.card import number
from privopt.mechanisms.estimators.class_card import ClassCard, ClassColumn
from privopt.mechanisms.estimators.page import POINTS, breakable, for_experts, promises
from privopt.mechanisms.estimators.page_frame import framed

# Columns of points are headed by the class names if all are at most this long, otherwise by letters.
_SHORT = 6
_LEVEL = Template(
    '<label><input type="radio" name="$box" data-points="$points"><span>$level</span>$cells</label>'
)
_LINE = Template(
    '<label class="line"><span>$low to $high<br><small>in proportion</small></span>'
    '<input type="number" step="any" data-range="$low,$high" data-first="$first" data-last="$last" '
    'aria-label="$name">$cells</label>'
)


def class_page(card: ClassCard, *, title: str = "") -> str:
    """Render a card of several classes as HTML: points, rule and guarantee, at no privacy cost.

    Args:
        card: the card.
        title: a heading; by default it names the label column, if known.
    """
    heads = class_heads(card.names)
    largest = max((abs(p) for c in card.columns for _, points in c.ends for p in points), default=0) or 1
    unused = f"No points for {', '.join(card.unused)}." if card.unused else ""
    facts = json.dumps({"bases": list(card.bases), "classes": list(card.names)})
    points = POINTS.substitute(
        facts=escape(facts),
        kind="boxes classes",
        boxes="\n".join(_box(f"c{i}", c, heads, largest) for i, c in enumerate(card.columns)),
        unused=f'<p class="note">{escape(unused)}</p>' if unused else "",
        total=_total(heads),
    )
    return framed(
        title or f"Scorecard: {card.target or ', '.join(card.names)}",
        _how(card, heads),
        points,
        promises(card.spend, None, None, False),
        for_experts(card.spend, card.to_dict()),
        script="class_page.js",
    )


def class_heads(names: Sequence[str]) -> tuple[str, ...]:
    """Return a short head for the points of each class: its name, or a letter if any name is long."""
    if all(len(name) <= _SHORT for name in names):
        return tuple(names)
    return tuple(
        ascii_uppercase[k] if len(names) <= len(ascii_uppercase) else str(k + 1) for k in range(len(names))
    )


def _how(card: ClassCard, heads: Sequence[str]) -> str:
    pairs = zip(heads, card.names, strict=True)
    legend = ", ".join(f"<b>{escape(head)}</b> {escape(name)}" for head, name in pairs if head != name)
    start = ", ".join(f"{escape(head)} {number(base)}" for head, base in zip(heads, card.bases, strict=True))
    points = f"Every class starts with its own points: {start}. " if any(card.bases) else ""
    about = f"Classes: {legend}. " if legend else ""
    return (
        f"{about}{points}In every box choose what applies, and add its points to each class. <b>The class "
        "with the most points is predicted</b>, of equal ones the first."
    )


def _total(heads: Sequence[str]) -> str:
    cells = "".join(f"<b><small>{breakable(head)}</small> <output></output></b>" for head in heads)
    return f'<p class="total">{cells}<output id="verdict"></output></p>'


def _box(box: str, column: ClassColumn, heads: Sequence[str], largest: float) -> str:
    names = "".join(f"<b>{breakable(head)}</b>" for head in heads)
    rows = [f'<div class="heads"><span></span>{names}</div>']
    if column.proportion is not None:
        (low, first), (high, last) = column.proportion
        pairs = zip(first, last, strict=True)
        cells = "".join(f"<b>{number(a)} to {number(b)}</b>" for a, b in pairs)
        ends = {"first": _joined(first), "last": _joined(last), "name": escape(column.shown)}
        rows.append(_LINE.substitute(low=low, high=high, cells=cells, **ends))
    for level, points in column.rows:
        cells = "".join(_cell(p, largest) for p in points)
        rows.append(_LEVEL.substitute(box=box, points=_joined(points), level=breakable(level), cells=cells))
    return f"<fieldset><legend>{breakable(column.shown)}</legend>{''.join(rows)}</fieldset>"


def _cell(points: float, largest: float) -> str:
    sign = "minus" if points < 0 else "plus"
    return f'<b class="{sign}" style="--shade:{round(70 * abs(points) / largest)}%">{number(points)}</b>'


def _joined(points: Sequence[float]) -> str:
    return ",".join(f"{p:.17g}" for p in points)

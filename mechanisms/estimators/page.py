"""A scorecard as one self-contained HTML page: for a screen, a phone and paper."""

from __future__ import annotations

import json
import math
from html import escape
from importlib import resources
from typing import Any

from privopt.mechanisms.estimators.card import Card, CardColumn, number
from privopt.mechanisms.evaluation.metrics import NAMES, Evaluation
from privopt.mechanisms.privacy.spend import PrivacySpend

_SHOWN = ("auc", "balanced_accuracy", "accuracy", "majority", "sensitivity", "specificity")


def card_page(
    card: Card, evaluation: Evaluation | None = None, *, seen: bool = False, title: str = ""
) -> str:
    """The page: points, risks, how well they tell apart, what is guaranteed. Post-processing: costs nothing.

    Args:
        card: what to print.
        evaluation: a released one, for numbers and the ROC curve.
        seen: whether ``evaluation`` is about the records that the card was made from.
        title: a heading; the positive class by default.
    """
    heading = title or f"Scorecard: {card.classes[1]}"
    parts = [
        _points(card),
        _risks(card),
        "" if evaluation is None else _quality(evaluation, seen),
        _guarantee(card, evaluation),
    ]
    folder = resources.files("privopt.mechanisms.estimators")
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(heading)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f"<header><h1>{escape(heading)}</h1>\n<p>{_how(card)}</p></header>\n"
        + "\n".join(part for part in parts if part)
        + f"\n</main>\n<script>\n{script}</script>\n</body>\n</html>\n"
    )


def _how(card: Card) -> str:
    start = f"Start with <b>{number(card.base)}</b> points. " if card.base else ""
    enough = (
        f"<b>{number(card.threshold + 1)} or more</b>"
        if card.whole
        else f"<b>More than {number(card.threshold)}</b>"
    )
    yes, no = (f"<b>{escape(str(c))}</b>" for c in reversed(card.classes))
    return f"{start}In every box choose what applies and add its points. {enough}: {yes}. Fewer: {no}."


def _points(card: Card) -> str:
    largest = max((abs(p) for c in card.columns for p in c.points), default=1) or 1
    boxes = "\n".join(_box(i, column, largest) for i, column in enumerate(card.columns))
    table: list[list[Any]] = []
    if card.risks is not None:
        ends = [*card.risks.up_to, None]
        table = [list(row) for row in zip(ends, card.risks.risks, strict=True)]
    facts = {
        "base": card.base,
        "threshold": card.threshold,
        "classes": [str(c) for c in card.classes],
        "risks": table,
    }
    data = json.dumps(facts).replace("<", "\\u003c")
    unused = f"<p class='note'>No points for {escape(', '.join(card.unused))}.</p>" if card.unused else ""
    return (
        f"<section id='points' data-card='{escape(data)}'>\n<h2>Points</h2>\n<form class='boxes'>\n{boxes}\n</form>\n{unused}"
        "<p class='total'><span>Total</span> <output id='total'></output> <output id='verdict'></output></p>\n</section>"
    )


def _box(i: int, column: CardColumn, largest: float) -> str:
    rows = []
    if column.proportion is not None:
        (low, first), (high, last) = column.proportion
        rows.append(
            f"<label class='line'><span>{escape(low)} to {escape(high)}<br><small>in proportion</small></span>"
            f"<input type='number' step='any' data-line='{low},{first},{high},{last}' aria-label='{escape(column.name)}'>"
            f"<b>{number(first)} to {number(last)}</b></label>"
        )
    for level, points in column.rows:
        shade = round(70 * abs(points) / largest)
        tone = f"--shade:{shade}%" if points else "--shade:0%"
        sign = "minus" if points < 0 else "plus"
        rows.append(
            f"<label><input type='radio' name='c{i}' data-points='{points}'><span>{escape(level)}</span>"
            f"<b class='{sign}' style='{tone}'>{number(points)}</b></label>"
        )
    return f"<fieldset><legend>{escape(column.name)}</legend>{''.join(rows)}</fieldset>"


def _risks(card: Card) -> str:
    if card.risks is None:
        return ""
    rows = []
    for k, row in enumerate(card.risk_rows()):
        left, width = 100 * row["low"], 100 * (row["high"] - row["low"])
        rows.append(
            f"<tr data-row='{k}'><td>{row['points']}</td><td class='n'>{row['risk']:.1%}</td>"
            f"<td class='bar'><i style='width:{100 * row['risk']:.1f}%'></i>"
            f"<u style='left:{left:.1f}%;width:{width:.1f}%'></u></td>"
            f"<td class='n wide'>{row['low']:.1%} to {row['high']:.1%}</td></tr>"
        )
    return (
        f"<section id='risks'>\n<h2>Risk of {escape(str(card.classes[1]))}</h2>\n<table><thead><tr><th>points</th><th>risk</th>"
        f"<th></th><th class='wide'>{card.risks.confidence:.0%} interval</th></tr></thead>\n<tbody>{''.join(rows)}</tbody></table>\n"
        "<p class='note'>Of records with so many points, the share that is of this class. The line on a bar is the interval: it "
        "includes the noise that was added for privacy.</p>\n</section>"
    )


def _quality(evaluation: Evaluation, seen: bool) -> str:
    rows = [
        f"<tr><td>{escape(NAMES[name])}</td><td class='n'>{_decimal(found.value)}</td>"
        f"<td class='n'>{found.low:.2f} to {found.high:.2f}</td></tr>"
        for name, found in evaluation.metrics.items()
        if name in _SHOWN
    ]
    source = (
        "the records that the card was made from; on new ones expect a little less"
        if seen
        else "records that were not used to make the card"
    )
    return (
        f"<section id='quality'>\n<h2>How well it tells apart</h2>\n<div class='two'>{_roc(evaluation)}\n<div><table><thead><tr><th></th><th>estimate</th>"
        f"<th>{evaluation.confidence:.0%} interval</th></tr></thead><tbody>{''.join(rows)}</tbody></table>\n"
        f"<p class='note'>From {evaluation.histogram.n_records:,} records: {source}. Noise for privacy is included in the intervals.</p></div></div>\n</section>"
    )


def _decimal(value: float) -> str:
    return "open" if math.isnan(value) else f"{value:.2f}"


def _roc(evaluation: Evaluation) -> str:
    curve = evaluation.roc
    if curve[["fpr", "tpr"]].isna().to_numpy().any():
        return "<p class='note'>Too much noise for a curve.</p>"
    points = [(0.0, 0.0), *curve[["fpr", "tpr"]].to_numpy().tolist(), (1.0, 1.0)]
    path = " ".join(f"{100 * x:.1f},{100 - 100 * y:.1f}" for x, y in points)
    here = curve[curve["threshold"] == 0].iloc[0]
    return (
        "<figure><svg viewBox='-14 -4 120 122' role='img' aria-label='ROC curve'>"
        "<rect width='100' height='100' class='frame'/><line x1='0' y1='100' x2='100' y2='0' class='chance'/>"
        f"<polyline points='{path}' class='roc'/>"
        f"<circle cx='{100 * here.fpr:.1f}' cy='{100 - 100 * here.tpr:.1f}' r='2.2' class='dot'/>"
        "<text x='0' y='107'>0</text><text x='100' y='107' class='end'>1</text><text x='-3' y='100' class='end'>0</text>"
        "<text x='-3' y='4' class='end'>1</text><text x='50' y='115' class='mid'>false alarms</text>"
        "<text x='-8' y='50' class='mid' transform='rotate(-90 -8 50)'>found</text></svg>"
        "<figcaption>ROC curve; the dot is the rule of this card.</figcaption></figure>"
    )


def _guarantee(card: Card, evaluation: Evaluation | None) -> str:
    spend = card.spend
    lines = [_plain_words(spend)]
    if card.n_records is not None:
        lines.append(f"The card was made from {card.n_records:,} records; how many is treated as known.")
    if card.risks is not None:
        lines.append("The risks are paid for by the same guarantee.")
    if evaluation is not None and evaluation.spend.epsilon != spend.epsilon:
        lines.append(
            f"The figures on how well it tells apart are a release of their own: epsilon = {evaluation.spend.epsilon:g}."
        )
    lines.append(
        "Not promised: that the card is right for one person, or that nothing can be learned about people in general. "
        "What the records say about everybody, with or without this person, is what a scorecard is for."
    )
    items = "".join(f"<li>{line}</li>" for line in lines)
    return (
        f"<section id='privacy'>\n<h2>What is guaranteed</h2>\n<ul>{items}</ul>\n"
        f"<p class='note'>{escape(str(spend))}{'; ' + escape(spend.note) if spend.note else ''}</p>\n</section>"
    )


def _plain_words(spend: PrivacySpend) -> str:
    if not spend.guaranteed:
        return "<b>Nothing:</b> the noise was reproducible, or the claim is refuted. Do not use this card on real people."
    factor = math.exp(min(spend.epsilon, 700))
    times = f"{factor:.3g} times" if factor < 1e6 else "a very large number of times"
    small = "" if spend.delta == 0 else f", except with a probability of at most {spend.delta:.2g}"
    return (
        f"The card is differentially private with epsilon = {spend.epsilon:g}: had the record of one person been replaced by any "
        f"other, every card, this one included, would have come out with a chance at most {times} as large or as small{small}. "
        "So whoever reads it, whatever else they know, learns little about whether and how one person is in the records."
    )

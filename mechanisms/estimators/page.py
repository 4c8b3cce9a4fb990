"""Scorecards as self-contained HTML pages for screens, phones and print."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.metadata import version
from string import Template
from typing import Any

from privopt.mechanisms.estimators.card import Card, CardColumn, number
from privopt.mechanisms.estimators.page_frame import framed
from privopt.mechanisms.evaluation.metrics import NAMES, Evaluation
from privopt.mechanisms.privacy.spend import PrivacySpend

# The metrics of an evaluation that the page shows.
_SHOWN = ("auc", "balanced_accuracy", "accuracy", "majority", "sensitivity", "specificity")

_TOTAL = '<p class="total"><span>Total</span> <output id="total"></output> <output id="verdict"></output></p>'
_LARGE = 5.0  # the page warns of a larger epsilon
_LINE = Template(
    '<label class="line"><span>$low to $high<br><small>in proportion</small></span>'
    '<input type="number" step="any" data-line="$low,$first,$high,$last" aria-label="$name">'
    "<b>$start to $end</b></label>"
)
_LEVEL = Template(
    '<label><input type="radio" name="$box" data-points="$points"><span>$level</span>'
    '<b class="$sign" style="--shade:$shade%">$text</b></label>'
)
_RISK = Template(
    '<tr><td>$points</td><td class="n">$risk</td><td class="bar"><i style="width:$width%"></i>'
    '<u style="left:$left%;width:$span%"></u></td><td class="n wide">$low to $high</td></tr>'
)
_RISKS = Template("""<section id="risks">
<h2>Risk of $positive</h2>
<table><thead><tr><th>points</th><th>risk</th><th></th><th class="wide">$interval</th></tr></thead>
<tbody>
$rows
</tbody></table>
<p class="note">The risk is the share of $positive among records with so many points. The line on a bar is
the $interval: it includes the noise that was added for privacy.</p>
</section>""")
_QUALITY = Template("""<section id="quality">
<h2>Accuracy</h2>
<div class="two">$curve
<div><table><thead><tr><th></th><th>estimate</th><th>$interval</th></tr></thead>
<tbody>
$rows
</tbody></table>
<p class="note">$source. Noise for privacy is included in the intervals.</p></div></div>
</section>""")
_ROC = Template("""<figure><svg viewBox="-14 -4 120 122" role="img" aria-label="ROC curve">
<rect width="100" height="100" class="frame"/><line x1="0" y1="100" x2="100" y2="0" class="chance"/>
<polyline points="$path" class="roc"/><circle cx="$x" cy="$y" r="2.2" class="dot"/>
<text x="0" y="107">0</text><text x="100" y="107" class="end">1</text>
<text x="-3" y="100" class="end">0</text><text x="-3" y="4" class="end">1</text>
<text x="50" y="115" class="mid">false alarms</text>
<text x="-8" y="50" class="mid" transform="rotate(-90 -8 50)">found</text></svg>
<figcaption>ROC curve; the dot is the rule of this $noun.</figcaption></figure>""")


# The section in which points are chosen; the script of the page adds them up.
POINTS = Template("""<section id="points" data-card="$facts">
<h2>Points</h2>
<form class="$kind">
$boxes
</form>
$unused
$total
</section>""")


def card_page(
    card: Card, evaluation: Evaluation | None = None, *, seen: bool = False, title: str = ""
) -> str:
    """Render a card as HTML: points, risks, quality and privacy guarantee, at no privacy cost.

    Args:
        card: the card.
        evaluation: a released evaluation, for metrics and the ROC curve.
        seen: whether ``evaluation`` is known to be on training records.
        title: a heading; by default it names the label column, if known, and the positive class.
    """
    largest = max((abs(p) for c in card.columns for p in c.points), default=0) or 1
    unused = f"No points for {', '.join(card.unused)}." if card.unused else ""
    points = POINTS.substitute(
        facts=escape(json.dumps(_facts(card))),
        kind="boxes",
        boxes="\n".join(_box(f"c{i}", column, largest) for i, column in enumerate(card.columns)),
        unused="".join(f'<p class="note">{escape(t)}</p>' for t in (unused, card.constrained) if t),
        total=_TOTAL,
    )
    found = "" if evaluation is None else quality(evaluation, seen)
    return framed(
        title or f"Scorecard: {card.names[1]}",
        _how(card),
        f"{points}\n{_risks(card)}\n{found}",
        promises(card.spend, card.n_records, evaluation, seen),
        for_experts(card.spend, card.to_dict()),
        script="page.js",
    )


def _facts(card: Card) -> dict[str, object]:
    """Return the facts of the card for the page's script."""
    risks = None if card.risks is None else [[*card.risks.up_to, None], list(card.risks.risks)]
    names = list(card.names)
    return {"base": card.base, "threshold": card.threshold, "classes": names, "risks": risks}


def _how(card: Card) -> str:
    start = f"Start with <b>{number(card.base)}</b> points. " if card.base else ""
    yes, no = (f"<b>{escape(name)}</b>" for name in reversed(card.names))
    enough = card.enough[0].upper() + card.enough[1:]
    choose = f"{start}In every box choose what applies and add its points."
    warning = f' <span class="warning">{escape(card.warning)}</span>' if card.warning else ""
    return f"{choose} <b>{enough}</b>: {yes}. Otherwise: {no}.{warning}"


def _box(box: str, column: CardColumn, largest: float) -> str:
    rows = []
    if column.proportion is not None:
        (low, first), (high, last) = column.proportion
        ends = {"start": number(first), "end": number(last), "name": escape(column.shown)}
        rows.append(_LINE.substitute(low=low, high=high, first=first, last=last, **ends))
    for level, points in column.rows:
        rows.append(
            _LEVEL.substitute(
                box=box,
                points=points,
                level=breakable(level),
                sign="minus" if points < 0 else "plus",
                shade=round(70 * abs(points) / largest),
                text=number(points),
            )
        )
    return f"<fieldset><legend>{breakable(column.shown)}</legend>{''.join(rows)}</fieldset>"


def _risks(card: Card) -> str:
    if card.risks is None:
        return ""
    rows = [
        _RISK.substitute(
            points=row["points"],
            risk=f"{row['risk']:.1%}",
            width=f"{100 * row['risk']:.1f}",
            left=f"{100 * row['low']:.1f}",
            span=f"{100 * (row['high'] - row['low']):.1f}",
            low=f"{row['low']:.1%}",
            high=f"{row['high']:.1%}",
        )
        for row in card.risk_rows()
    ]
    interval = f"{card.risks.confidence:.0%} interval"
    return _RISKS.substitute(positive=escape(card.names[1]), interval=interval, rows="\n".join(rows))


def for_experts(spend: PrivacySpend, model: Mapping[str, Any]) -> str:
    """Return the spend in technical terms, the version, and a number that identifies the model."""
    detail = f". In detail: {spend.note}" if spend.note else ""
    number = sha256(json.dumps(model, sort_keys=True, default=str).encode()).hexdigest()[:8]
    return f"For experts: {spend}{detail}. privopt {version('privopt')}, model {number}"


def breakable(name: str) -> str:
    """Return a name as HTML in which lines break after separators rather than within words."""
    return re.sub(r"([_./:-])(?=\w)", r"\1<wbr>", escape(name))


def quality(evaluation: Evaluation, seen: bool, noun: str = "card") -> str:
    """Return the section with the metrics and the ROC curve of an evaluation."""
    rows = [
        f'<tr><td>{escape(NAMES[name])}</td><td class="n">{_decimal(found.value)}</td>'
        f'<td class="n">{found.low:.2f} to {found.high:.2f}</td></tr>'
        for name, found in evaluation.metrics.items()
        if name in _SHOWN
    ]
    source = (
        f"From {evaluation.histogram.n_records:,} records. If any of them were training records of the "
        f"{noun}, expect a little less on new ones"
    )
    if seen:
        source = f"From the training records of the {noun}: on new ones expect a little less"
    interval = f"{evaluation.confidence:.0%} interval"
    return _QUALITY.substitute(
        curve=_roc(evaluation, noun), interval=interval, rows="\n".join(rows), source=source
    )


def _decimal(value: float) -> str:
    return "open" if math.isnan(value) else f"{value:.2f}"


def _roc(evaluation: Evaluation, noun: str) -> str:
    curve = evaluation.roc
    if curve[["fpr", "tpr"]].isna().to_numpy().any():
        return '<p class="note">Too much noise for a ROC curve.</p>'
    points = [(0.0, 0.0), *curve[["fpr", "tpr"]].to_numpy().tolist(), (1.0, 1.0)]
    path = " ".join(f"{100 * x:.1f},{100 - 100 * y:.1f}" for x, y in points)
    rule = curve.loc[curve["threshold"] == 0, ["fpr", "tpr"]].to_numpy()[0]
    return _ROC.substitute(noun=noun, path=path, x=f"{100 * rule[0]:.1f}", y=f"{100 - 100 * rule[1]:.1f}")


def promises(
    spend: PrivacySpend,
    n_records: int | None,
    evaluation: Evaluation | None,
    seen: bool,
    noun: str = "card",
) -> list[str]:
    """Return the guarantee in plain words."""
    lines = [_promise(spend, noun)]
    if n_records is not None:
        lines.append(f"The {noun} was fitted to {n_records:,} records. Their number is treated as public.")
    if evaluation is not None and not seen:
        lines.append(
            "The accuracy figures are a release of their own, with epsilon = "
            f"{evaluation.spend.epsilon:g} for the evaluated records. For a training record of the {noun} "
            "among them the two add up."
        )
    lines.append(
        f"Not guaranteed: that the {noun} is right about a person, or that nothing can be learned about "
        "people in general. Facts that do not depend on one person's record are the purpose of a "
        f"{'scorecard' if noun == 'card' else noun}."
    )
    return lines


def _promise(spend: PrivacySpend, noun: str) -> str:
    if not spend.adds_up:
        return (
            "Nothing: the noise was reproducible, or the claim behind it is refuted. Do not use this "
            f"{noun} where records are private."
        )
    factor = math.exp(min(spend.epsilon, 700.0))
    times = f"{factor:.3g} times" if factor < 1e6 else "very many times"
    slack = ""
    if spend.delta:
        rare = f"one in {int(1 / spend.delta):,}" if spend.delta > 1e-15 else f"{spend.delta:.2g}"
        slack = f", except with probability {rare}"
    weak = " That is a weak guarantee: epsilon is large." if spend.epsilon > _LARGE else ""
    if spend.claim == "not checked":
        weak += f" Not all of the code behind this guarantee has been checked: {spend.note}."
    return (
        f"This {noun} is differentially private with epsilon = {spend.epsilon:g}. Had the record of one "
        f"person been any other, each possible {noun} would have resulted with a probability at most {times} "
        f"as large or as small{slack}. So the {noun} shifts the odds between any two values of one record by "
        f"that factor at most, for whoever reads it, whatever else they know.{weak}"
    )

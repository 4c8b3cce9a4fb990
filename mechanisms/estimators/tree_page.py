"""A tree or a rule list as one self-contained HTML page: for a screen, a phone and paper."""

from __future__ import annotations

from html import escape
from importlib import resources
from string import Template

from privopt.mechanisms.estimators.page import for_experts, promises, quality
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.evaluation.metrics import Evaluation

_RISKS = Template("""<section id="risks">
<h2>How often it is so</h2>
<table><thead><tr><th>prediction</th><th class="wide">records</th>$heads</tr></thead>
<tbody>
$rows
</tbody></table>
<p class="note">Of records that reach a leaf, the share of each class, in the order of the picture; in
brackets its $interval, which includes the noise that was added for privacy.</p>
</section>""")


def tree_page(
    card: TreeCard, evaluation: Evaluation | None = None, *, seen: bool = False, title: str = ""
) -> str:
    """The page: the picture, risks, how well it tells apart, what is guaranteed. Costs nothing.

    Args:
        card: what to print.
        evaluation: a released one, for numbers and the ROC curve.
        seen: whether ``evaluation`` is known to be about the records that the model was made from.
        title: a heading; the label column, where its name is known, and the last class by default.
    """
    files = resources.files("privopt.mechanisms.estimators")
    page, style = ((files / name).read_text("utf-8") for name in ("tree.html", "page.css"))
    found = "" if evaluation is None else quality(evaluation, seen, card.noun)
    return Template(page).substitute(
        title=escape(title or f"{card.noun.capitalize()}: {card.names[-1]}"),
        style=style,
        how=_how(card),
        noun=escape(card.noun),
        picture=card.to_svg(),
        risks=_risks(card),
        quality=found,
        promises="\n".join(
            f"<li>{escape(line)}</li>"
            for line in promises(card.spend, card.n_records, evaluation, seen, card.noun)
        ),
        spend=escape(for_experts(card.spend)),
    )


def _how(card: TreeCard) -> str:
    start = (
        "Go down the list: the first rule that holds decides."
        if card.is_list
        else "Start at the top. At every branch follow the line that holds, until a prediction stands there."
    )
    warning = f' <span class="warning">{escape(card.warning)}</span>' if card.warning else ""
    return f"{start}{warning}"


def _risks(card: TreeCard) -> str:
    if card.risks is None:
        return ""
    rows = []
    for row in card.risk_rows():
        shares = "".join(
            f'<td class="n">{found["share"]:.1%} <span class="wide">({found["low"]:.1%} to '
            f"{found['high']:.1%})</span></td>"
            for found in row["shares"]
        )
        name = card.names[card.classes.index(row["prediction"])]
        rows.append(f'<tr><td>{escape(name)}</td><td class="n wide">{row["size"]:.1%}</td>{shares}</tr>')
    heads = "".join(f"<th>{escape(name)}</th>" for name in card.names)
    interval = f"{card.risks.confidence:.0%} interval"
    return _RISKS.substitute(heads=heads, interval=interval, rows="\n".join(rows))

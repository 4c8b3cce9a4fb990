"""Trees and rule lists as self-contained HTML pages for screens, phones and print."""

from __future__ import annotations

from html import escape
from string import Template

from privopt.mechanisms.estimators.page import for_experts, promises, quality
from privopt.mechanisms.estimators.page_frame import framed
from privopt.mechanisms.estimators.tree_card import TreeCard
from privopt.mechanisms.evaluation.metrics import Evaluation

_RISKS = Template("""<section id="risks">
<h2>Class shares by prediction</h2>
<table><thead><tr><th>prediction</th><th class="wide">records</th>$heads</tr></thead>
<tbody>
$rows
</tbody></table>
<p class="note">Shares of the classes among the records that reach a leaf, with leaves in the order of the
picture; in brackets the $interval, which includes the noise that was added for privacy.</p>
</section>""")


def tree_page(
    card: TreeCard, evaluation: Evaluation | None = None, *, seen: bool = False, title: str = ""
) -> str:
    """Render a tree or rule list as HTML: picture, risks, accuracy and privacy guarantee; no privacy cost.

    Args:
        card: the model to print.
        evaluation: a released evaluation, for metrics and the ROC curve.
        seen: whether ``evaluation`` is known to be on training records.
        title: a heading; by default it names the label column, if known, and the last class.
    """
    found = "" if evaluation is None else quality(evaluation, seen, card.noun)
    return framed(
        title or f"{card.noun.capitalize()}: {card.names[-1]}",
        _how(card),
        f"{picture_section(card)}\n{_risks(card)}\n{found}",
        promises(card.spend, card.n_records, evaluation, seen, card.noun),
        for_experts(card.spend, card.to_dict()),
    )


def picture_section(card: TreeCard) -> str:
    """Return the section with the picture of the tree or rule list."""
    return f'<section id="model">\n<h2>The {escape(card.noun)}</h2>\n{card.to_svg()}\n</section>'


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

"""Write the table of audits in privacy.md: ``python -m privopt.experiments.audit_page RESULTS.json``.

``privopt audit --all --json RESULTS.json`` writes the file. The page gives the day on which the file was last
changed as the day of the run.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Annotated, Any

import typer

PAGE = Path(__file__).parent / "docs" / "privacy.md"
_HEAD, _WHOLE, _END = "| mechanism | neighbours |", "The table\nis one run of `--all`", "More runs bring"


def with_results(page: str, lines: Sequence[dict[str, Any]], day: date) -> str:
    """Return the page with the table of one run of all audits, and the sentence that sums it up.

    Args:
        page: the text of privacy.md.
        lines: the lines of the command's report.
        day: when the command was run.
    """
    before, _, rest = page.partition(_HEAD)
    heads, rows = rest.split("\n", 2)[:2], [_row(line) for line in lines]
    after = rest[rest.index("\n\n") :]
    runs = f"{2 * lines[0]['held_out']:,} runs |"
    names = " | ".join([*heads[0].strip(" |").split(" | ")[:3], f"lower bound, {runs} verdict |"])
    table = "\n".join([f"{_HEAD} {names}", heads[1], *rows])
    before_sum, _, tail = after.partition(_WHOLE)
    return f"{before}{table}{before_sum}{_summary(lines, day)} {tail[tail.index(_END) :]}"


def _row(line: dict[str, Any]) -> str:
    subject = f"mutant: {line['subject']}" if line["mutant"] else line["subject"]
    exact = "" if line["exact_epsilon"] is None else f"{line['exact_epsilon']:.3f}"
    claimed, bound = f"({line['epsilon']:g}, {line['delta']:g})", f"{line['lower_bound']:.3f}"
    cells = line["mechanism"], line["neighbours"], subject, claimed, exact, bound, line["verdict"]
    return f"| {' | '.join(cells)} |"


def _summary(lines: Sequence[dict[str, Any]], day: date) -> str:
    claims = [line["passed"] for line in lines if not line["mutant"]]
    mutants = [line for line in lines if line["mutant"]]
    rejected, by_law = sum(m["passed"] for m in mutants), sum("(law)" in m["verdict"] for m in mutants)
    when = f"{day.day} {day:%B %Y}"
    return (
        f"{_WHOLE}, of {when}: {sum(claims)} of {len(claims)} claims stand, and {rejected} of {len(mutants)} "
        f"mutants are rejected, {by_law} of them by the exact law alone."
    )


def main(
    results: Annotated[Path, typer.Argument(help="What `privopt audit --all --json RESULTS` wrote.")],
) -> None:
    """Write the table of audits in privacy.md, and the sentence that sums it up."""
    found = json.loads(results.read_text("utf-8"))["lines"]
    day = date.fromtimestamp(results.stat().st_mtime)
    PAGE.write_text(with_results(PAGE.read_text("utf-8"), found, day), "utf-8")


if __name__ == "__main__":
    typer.run(main)

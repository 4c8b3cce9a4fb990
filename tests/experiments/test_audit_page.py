"""The table of audits is what the command wrote."""

from __future__ import annotations

from datetime import date
from typing import Any

from privopt.experiments.audit_page import PAGE, with_results

DAY = date(2030, 1, 2)


def line(row: str) -> dict[str, Any]:
    """A line of the command's report from a row of the page."""
    mechanism, neighbours, subject, claimed, exact, bound, verdict = row.strip("| ").split(" | ")
    epsilon, delta = claimed.strip("()").split(", ")
    return {
        "mechanism": mechanism,
        "neighbours": neighbours,
        "subject": subject.removeprefix("mutant: "),
        "mutant": subject.startswith("mutant: "),
        "epsilon": float(epsilon),
        "delta": float(delta),
        "exact_epsilon": float(exact),
        "lower_bound": float(bound),
        "verdict": verdict,
        "held_out": 2000,
        "passed": True,
    }


def test_the_table_of_audits_is_that_of_the_results_alone() -> None:
    page = PAGE.read_text("utf-8")
    rows = [r for r in page.splitlines() if r.endswith((" stands |", " rejected |", " rejected (law) |"))]
    lines = [line(row) for row in rows]
    whole = with_results(page, lines, DAY)
    assert [r for r in whole.splitlines() if r in set(rows)] == rows
    claims, mutants = sum(not x["mutant"] for x in lines), sum(x["mutant"] for x in lines)
    assert (
        f"of 2 January 2030: {claims} of {claims} claims stand, and {mutants} of {mutants} mutants" in whole
    )
    lines[0] |= {"lower_bound": 2.0, "verdict": "REFUTED", "passed": False}
    fewer = with_results(whole, lines[:3], DAY)
    assert "| 2.000 | REFUTED |" in fewer
    assert f"{1} of 2 claims stand, and 1 of 1 mutants are rejected, 0 of them" in fewer
    assert len(fewer.splitlines()) == len(whole.splitlines()) - len(lines) + 3
    assert with_results(fewer, [line(row) for row in rows], DAY) == whole

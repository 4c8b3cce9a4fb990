"""Causes of differences from the papers: each is known to a verdict, and its numbers are computed here."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from privopt.experiments.reproduce import (
    reasons,
    runner,
    wang_chen_xu2019_risk,
    wang_xiao2020,
    wang_xu2019,
)
from privopt.experiments.reproduce import wang_xu2019_figure3 as figure3
from privopt.experiments.reproduce.interface import Agreement, Reason, Verdict
from privopt.experiments.reproduce.reasons import REASONS, explained, summary
from privopt.experiments.reproduce.registry import FIGURES, reproduction
from privopt.experiments.reproduce.wang2017 import DELTA, EPSILONS
from privopt.experiments.reproduce.wang2017_table1 import _STUDY as TABLE1
from privopt.mechanisms.discrete.opdisc import OPDisc
from privopt.mechanisms.discrete.rspm import GaussianRSPM
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.problems.convex.losses import LogisticLoss, SigmoidLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.unclipped import PLAIN_SQUARES, unclipped_facts
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntegerLattice

DOCS = Path(runner.__file__).parents[1] / "docs"


def _shown(name: str) -> list[Verdict]:
    figure = reproduction(name)
    return list(figure.verdicts(figure.study(True).kept(DOCS / "figures").frame))


def test_the_pages_count_what_is_judged() -> None:
    """The count on the page of all reproductions is that of the results; no cause is of another claim."""
    verdicts = []
    for name in FIGURES:
        own = _shown(name)
        for part in REASONS.get(name, {}):
            assert any(part in v.claim for v in own), (name, part)
        verdicts += explained(name, own)
    assert set(REASONS) <= set(FIGURES)
    counted = summary(verdicts)
    assert counted in (DOCS / "figures" / "figures-quick.md").read_text()
    assert "include} figures/figures-quick.md" in (DOCS / "reproductions.md").read_text()
    numbers = [int(n) for n in re.findall(r"\d+", counted)]
    assert numbers[0] == sum(numbers[1:])
    assert 74 * sum(numbers[1:4]) >= 60 * numbers[0]


def test_a_cause_is_given_where_a_measurement_differs_and_only_there() -> None:
    def verdict(agreement: Agreement, reason: Reason | None = None) -> Verdict:
        return Verdict("the number of iterations matters little", agreement, "", reason)

    own = Reason("of its own", derived=False)
    found = explained(
        "wang-xu2019-figure2",
        [
            verdict(Agreement.YES),
            verdict(Agreement.NO),
            verdict(Agreement.PARTLY, own),
            verdict(Agreement.FAILS),
            Verdict("another claim", Agreement.NO, ""),
        ],
    )
    assert [v.reason for v in found] == [None, reasons._MANY_STEPS, own, None, None]
    assert [int(n) for n in re.findall(r"\d+", summary(found))] == [4, 1, 1, 1, 1]


def _power(x: list[float], y: list[float]) -> float:
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_numbers_of_the_causes_in_the_tables_of_2017() -> None:
    z = np.linspace(-14, 14, 20_001)  # predictions at the true weights: p signs of size 2 / sqrt p
    s = 1 / (1 + np.exp(-z))
    curvature = float(np.trapezoid(stats.norm.pdf(z, 0, 2) * s * (1 - s), z))
    assert f"{curvature:.3f}" in reasons._CURVATURE.text
    p = [float(d) for d in TABLE1.dimensions]
    grown = _power(p, [d / (TABLE1.regularizer.l2 + curvature / d) for d in p])
    assert f"power {grown:.2f} from p = {p[0]:g} to {p[-1]:g}" in reasons._CURVATURE.text
    budgets = _power(list(EPSILONS), [gaussian_mu(e, DELTA) for e in EPSILONS])
    assert f"the power {budgets:.2f} over" in reasons._EXACT_NOISE.text
    assert f"has {-2 * budgets:.2f}" in reasons._EXACT_NOISE.text


def test_numbers_of_the_causes_in_the_figures_of_2019() -> None:
    for n, shown in ((1_250, "0.46"), (10_000, "0.058")):  # 100 features
        facts = RiskFacts(n, 100, SigmoidLoss(), row_norm=wang_xu2019._ROW_NORM)
        size = 10 * wang_xu2019.exact_noise(facts, figure3.EPSILON, figure3.STEPS)
        assert f"{size:.2g}" == shown
        assert f"{shown} at n = {n:,}" in reasons._STEP_NOISE.text.replace("norm of ", "")
    budgets, n = (0.3, 1.0, 3.0), 2_000
    assert budgets == wang_chen_xu2019_risk._EPSILONS
    level = _power(list(budgets), [gaussian_mu(e, 1 / n**2) for e in budgets])
    assert f"power of ε is {-2 / 3 * level:.2f}" in reasons._COLD.text


def norm(curve: str, name: str, n: int, d: int) -> float:
    """Return the norm of the noise of a gradient."""
    loss = PLAIN_SQUARES if name in (wang_xiao2020.LINE, wang_xiao2020.ADULT_LINE) else LogisticLoss()
    plan = wang_xiao2020.plan_of(curve, name, unclipped_facts(n, d, loss), 1.0)
    return math.sqrt(d) * plan.noise["sigma"]


def test_noise_of_heavy_tailed_descents_is_that_of_the_causes() -> None:
    paper = wang_xiao2020
    line, signs = (norm(paper.PRINTED, name, 100_000, 10) for name in (paper.LINE, paper.SIGNS))
    assert f"{line:.1f} for the regression and {signs:.2f} for" in reasons._PRINTED_SCALE.text
    assert line > 1.0  # |w*|, the norm of the gradient at 0 of standard normal features
    assert signs > math.sqrt(2 / math.pi) / 2  # the largest possible one, E|<x, w*>| / 2
    adult = [norm(paper.PRINTED, name, 28_000, 6) for name in (paper.ADULT_LINE, paper.ADULT_SIGNS)]
    assert f"{adult[0]:.2f} for ridge and {adult[1]:.2f} for" in reasons._ADULT_SCALE.text
    assert f"{norm(paper.BALANCED, paper.LINE, 100_000, 10):.2f} at the balanced" in reasons._SHARED.text
    assert f"({norm(paper.BALANCED, paper.SIGNS, 100_000, 10):.2f} and" in reasons._SHARED.text


@pytest.mark.slow  # calibrates 50 sampled batches by convolution
def test_noise_on_batches_is_that_of_the_cause() -> None:
    paper = wang_xiao2020
    assert f"and {norm(paper.BATCHES, paper.LINE, 100_000, 10):.2f} on batches" in reasons._SHARED.text
    assert f"and {norm(paper.BATCHES, paper.SIGNS, 100_000, 10):.2f} for" in reasons._SHARED.text


def test_sound_noise_turns_the_order_of_the_oracle_mechanisms_round() -> None:
    """At d = 23 OPDisc needs more than its printed noise and RSPM less."""
    n, lattice = 15_682, IntegerLattice(-1, 1, dimension=23)
    ratios = []
    for kind in (OPDisc, GaussianRSPM):
        sound, printed = (
            kind.plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=n**-2.0, calibration=c)
            for c in ("sound", "printed")
        )
        ratios.append(max(sound.noise.values()) / max(printed.noise.values()))
    assert ratios[0] > 1 > ratios[1]

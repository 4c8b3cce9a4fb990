"""Votes on the type of a column: the law of the choice."""

from __future__ import annotations

import numpy as np
from scipy import stats

from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.schemas.types import CANDIDATES, VotePlan


def test_a_type_is_chosen_with_the_weight_of_its_votes() -> None:
    plan, source, runs = VotePlan(strength=0.3), NoiseSource(0), 2_000
    votes = np.zeros(len(CANDIDATES), dtype=np.int64)
    votes[:3] = [50, 20, 40]  # in tenths
    weights = np.exp(0.3 * votes / 10)
    drawn = [CANDIDATES.index(plan.release(votes, source)) for _ in range(runs)]
    counts = np.bincount(drawn, minlength=len(CANDIDATES))
    assert stats.chisquare(counts, runs * weights / weights.sum()).pvalue > 1e-3


def test_beyond_the_margin_all_others_together_hardly_win() -> None:
    """Of weights exp(strength votes), with a lead of that many votes over each of the others."""
    for strength in (0.03, 0.3, 2.0):
        margin, others = VotePlan(strength).margin, len(CANDIDATES) - 1
        assert others * np.exp(-strength * margin) <= np.exp(-20) < others * np.exp(-strength * (margin - 1))

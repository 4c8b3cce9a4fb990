"""The laws that audits of unbounded records use are those of real releases, of claims and of mutants."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from privopt.mechanisms.audit.clipped_newton import NEWTON_AUDITS
from privopt.mechanisms.audit.heavy_tails import HEAVY_TAILED_AUDITS
from privopt.mechanisms.privacy.noise import NoiseSource

CLAIMS = {**HEAVY_TAILED_AUDITS, **NEWTON_AUDITS}
# Releases of 32 medians, or of many steps, take longer than those of one number.
RUNS = {
    "robust-sgd": 40,
    "trimmed-mean": 80,
    "trimmed-gd": 80,
    "sample-aggregate": 24,
    "clipped-newton": 60,
}


def fit(counts: np.ndarray, law: np.ndarray) -> float:
    """The p-value of a chi-square test; neighbouring outcomes are joined until each group expects 5."""
    seen, due = [0.0], [0.0]
    for count, expected in zip(counts, law * counts.sum(), strict=True):
        if due[-1] >= 5:
            seen.append(0.0)
            due.append(0.0)
        seen[-1] += count
        due[-1] += expected
    if due[-1] < 5:
        due[-2:], seen[-2:] = [sum(due[-2:])], [sum(seen[-2:])]
    assert len(due) > 1
    return float(stats.chisquare(seen, due).pvalue)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *((name, RUNS.get(name, 200)) for name in CLAIMS),
        *(
            pytest.param(name, 100 if name == "sample-aggregate" else 600, marks=pytest.mark.slow)
            for name in CLAIMS
        ),
    ],
)
def test_releases_follow_the_laws(name: str, runs: int) -> None:
    for audited in CLAIMS[name]():
        for subject in (audited.claim, *audited.mutants):
            assert subject.laws is not None
            for side, sampler in enumerate((subject.first, subject.second)):
                law = np.array(subject.laws[side])
                outcomes = np.array(sampler(runs, NoiseSource(insecure_seed=10 + side)))
                assert fit(np.bincount(outcomes, minlength=law.size), law) > 1e-3, subject.name

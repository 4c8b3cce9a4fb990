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
    "robust-sgd": 60,
    "trimmed-mean": 200,
    "trimmed-gd": 200,
    "sample-aggregate": 40,
    "clipped-newton": 100,
}


def fit(counts: np.ndarray, law: np.ndarray) -> float:
    """The p-value of a chi-square test; outcomes that are expected less than 5 times join the likeliest."""
    expected = law * counts.sum()
    rare = expected < 5
    top = int(np.argmax(expected))
    seen, due = counts.astype(float), expected.copy()
    seen[top] += counts[rare].sum()
    due[top] += expected[rare].sum()
    return float(stats.chisquare(seen[~rare], due[~rare]).pvalue)


@pytest.mark.parametrize(
    ("name", "runs"),
    [
        *((name, RUNS.get(name, 600)) for name in CLAIMS),
        pytest.param("robust-sgd", 600, marks=pytest.mark.slow),
        pytest.param("sample-aggregate", 100, marks=pytest.mark.slow),
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

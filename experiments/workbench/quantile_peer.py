"""Medians by OpenDP, run in a separate environment: ``python quantile_peer.py TASK``; prints JSON.

TASK is a JSON file with ``values`` of a column, ``candidates``, ``epsilon`` and ``runs``. In
OpenDP's symmetric distance tables that differ by replacing one record are at distance 2.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import opendp.prelude as dp  # type: ignore[import-not-found]


def medians(values: list[float], candidates: list[float], epsilon: float, runs: int) -> list[float]:
    """Release the median of a column several times, each with epsilon."""
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.symmetric_distance()
    scores = dp.t.make_quantile_score_candidates(*space, candidates, 0.5)

    def noisy(scale: float) -> Any:
        return scores >> dp.m.then_noisy_max(dp.max_divergence(), scale, negate=True)

    scale = dp.binary_search(lambda scale: noisy(scale).map(2) <= epsilon, (1e-3, 1e6))
    chosen = noisy(scale)
    return [candidates[chosen(values)] for _ in range(runs)]


if __name__ == "__main__":
    dp.enable_features("contrib")
    task = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps(medians(**task)))

"""Measure samples per second of the noise source, beside NumPy's generator, which is unfit for privacy.

Run: ``python -m privopt.experiments.benchmark_noise``.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import typer

from privopt.mechanisms.privacy.noise import MAX_EXPONENT, NoiseSource

_REPEATS = 5


def noise_rates(size: int = 1_000_000) -> pd.DataFrame:
    """Measure millions of samples per second, and our time over the time of NumPy's sampler.

    Every time is the least of several. NumPy has no exact discrete Gaussian or Laplace sampler: ours are
    compared with rounded draws of NumPy's continuous ones.
    """
    source, peer = NoiseSource(), np.random.default_rng(0)
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "64-bit words": (lambda: source.bits(size), lambda: peer.bit_generator.random_raw(size)),
        "uniform": (lambda: source.uniform(size), lambda: peer.random(size)),
        "Gaussian": (lambda: source.gaussian(1.0, size), lambda: peer.normal(size=size)),
        "Laplace": (lambda: source.laplace(1.0, size), lambda: peer.laplace(size=size)),
        "exponential": (lambda: source.exponential(size), lambda: peer.exponential(size=size)),
        "Gumbel": (lambda: source.gumbel(size), lambda: peer.gumbel(size=size)),
        "discrete Gaussian, exact": (
            lambda: source.discrete_gaussian(MAX_EXPONENT, size),
            lambda: np.rint(peer.normal(0.0, 2.0**MAX_EXPONENT, size)),
        ),
        "discrete Laplace, exact": (
            lambda: source.discrete_laplace(MAX_EXPONENT, size),
            lambda: np.rint(peer.laplace(0.0, 2.0**MAX_EXPONENT, size)),
        ),
    }
    rows = []
    for law, (ours, numpys) in pairs.items():
        seconds, other = _best_seconds(ours), _best_seconds(numpys)
        rows.append({"law": law, "million/s": size / seconds / 1e6, "time / NumPy's": seconds / other})
    return pd.DataFrame(rows).set_index("law")


def _best_seconds(run: Callable[[], object]) -> float:
    times = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times)


def main() -> None:
    """Time the samplers, in a few seconds."""
    print(noise_rates().to_string(float_format="{:.3g}".format))


if __name__ == "__main__":
    typer.run(main)

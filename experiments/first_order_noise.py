"""Compare the noise of first-order mechanisms with the papers' formulas, from public facts alone.

    python -m privopt.experiments.first_order_noise [--output FOLDER]

With ``--output`` the page is also written to ``first-order-noise.md`` in that folder.
"""

from __future__ import annotations

import math
from itertools import product
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from privopt.experiments.workbench.pages import filled, markdown_table, readable
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_mu, zcdp_rho
from privopt.mechanisms.privacy.gradient_noise import gaussian_steps
from privopt.mechanisms.privacy.selection_noise import selection_steps
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.convex.risk import RiskFacts
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.files import write_atomically

EPSILONS, STEPS, RECORDS = (0.1, 1.0, 5.0), (10, 100, 1000), (10_000, 581_012)
_DIMENSION = 54


def gradient_row(epsilon: float, delta: float, steps: int, n: int) -> dict[str, float]:
    """Return sigma per coordinate of the noise on the mean gradient, in units of G/n, by several rules.

    G bounds the gradient of a record, T is the number of steps.

    - added: what privopt adds.
    - least: by the exact law of T composed Gaussians, before privopt pays for releases on a grid.
    - moments: sqrt(8 T log(1/delta)) / epsilon. Wang, Ye and Xu (2017) and Wang and Xu (2019) print the
      variance c G^2 T log(1/delta) / (n^2 epsilon^2) with an unspecified constant c, here 8.
    - advanced composition: T Gaussian mechanisms, each with its textbook noise, under advanced composition
      (Dwork and Roth 2014, theorems 3.20 and A.1).
    """
    facts = RiskFacts(n, _DIMENSION, LogisticLoss())
    noise = gaussian_steps(
        epsilon, delta, steps=steps, sensitivity=facts.sensitivity, dimension=facts.dimension
    )
    unit = facts.gradient_bound / n
    part = advanced_epsilon(epsilon, delta / 2, steps)
    textbook = 2 * math.sqrt(2 * math.log(1.25 * 2 * steps / delta)) / part
    return {
        "epsilon": epsilon,
        "delta": delta,
        "T": steps,
        "n": n,
        "added": noise.sigma / unit,
        "least": 2 * math.sqrt(steps) / gaussian_mu(epsilon, delta),
        "moments, c = 8": math.sqrt(8 * steps * math.log(1 / delta)) / epsilon,
        "advanced composition": textbook,
    }


def selection_row(epsilon: float, delta: float, steps: int, n: int) -> dict[str, float]:
    """Return the Gumbel scale of DP-FW-L1 over the unit l1 ball, in units of G1/n, by several rules.

    G1 bounds the largest entry of a record's gradient, T is the number of steps.

    - added: what privopt adds.
    - least: the same before the price of rounding in floating point.
    - printed: each choice spends epsilon_0 = epsilon / sqrt(8 T log(1/delta)) and adds noise of scale
      2 sensitivity / epsilon_0 (Wang and Xu 2019, theorem 6; Talwar, Thakurta and Zhang 2015).
    """
    facts = RiskFacts(n, _DIMENSION, LogisticLoss())
    noise = selection_steps(epsilon, delta, steps=steps, facts=facts, convex_set=L1Ball(_DIMENSION, 1.0))
    per_step = math.sqrt(8 * zcdp_rho(epsilon, delta) / steps)
    return {
        "epsilon": epsilon,
        "delta": delta,
        "T": steps,
        "n": n,
        "added": noise.scale * n,
        "least": 4 / per_step,
        "printed": 4 * math.sqrt(8 * steps * math.log(1 / delta)) / epsilon,
    }


def advanced_epsilon(epsilon: float, delta: float, steps: int) -> float:
    """Return the largest e with sqrt(2 T log(1/delta)) e + T e (exp(e) - 1) <= epsilon, by bisection."""

    def total(e: float) -> float:
        return math.sqrt(2 * steps * math.log(1 / delta)) * e + steps * e * math.expm1(e)

    low, high = 0.0, epsilon
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) <= epsilon else (low, middle)
    return low


def tables() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Tabulate gradient noise and selection noise, with ratios of the papers' noise to the noise added."""
    gradient, selection = [], []
    for epsilon, steps, n in product(EPSILONS, STEPS, RECORDS):
        try:
            gradient.append(gradient_row(epsilon, 1 / n**2, steps, n))
        except PrivacyParameterError:  # delta is too small for this many draws on the grid
            continue
        selection.append(selection_row(epsilon, 1 / n**2, steps, n))
    first, second = pd.DataFrame(gradient), pd.DataFrame(selection)
    for name in ("moments, c = 8", "advanced composition"):
        first[f"{name} / added"] = first[name] / first["added"]
    second["printed / added"] = second["printed"] / second["added"]
    return first, second


def page() -> str:
    """Write the page of the documentation."""
    first, second = (markdown_table(table.map(readable)) for table in tables())
    places = {"features": f"{_DIMENSION}", "gradients": first, "choices": second}
    return filled("first-order-noise", places)


def main(
    output: Annotated[Path | None, typer.Option(help="Output folder for the page.")] = None,
) -> None:
    """Print the page, and write it to the output folder if one is given."""
    text = page()
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_atomically(output / "first-order-noise.md", text)
    Console(soft_wrap=True, emoji=False).print(text, highlight=False, markup=False)


if __name__ == "__main__":
    typer.run(main)

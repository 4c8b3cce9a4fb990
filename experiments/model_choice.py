"""Card, tree and both together on synthetic populations: the limits of ``choose_model`` come from here.

    python -m privopt.experiments.model_choice [--output choices.csv]

Records to train on are drawn from populations of ``privopt.experiments.workbench.tree_tasks``; the other half
is held out. Costs are balanced, and trees have three levels.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from privopt.experiments.workbench.tree_tasks import Population, populations
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateTreeClassifier,
)
from privopt.problems.files import write_atomically

# Numbers of records and epsilons.
SIZES = ((1_000, 0.1), (1_000, 0.3), (1_000, 1.0), (1_000, 3.0), (10_000, 0.1), (10_000, 0.3),
         (10_000, 1.0), (10_000, 3.0), (10_000, 10.0))  # fmt: skip
# Families of which populations with trees as labels take part.
_TREES = ("uniform", "few levels", "mixed")
MODELS: dict[str, Callable[..., Any]] = {
    "card": lambda epsilon, **known: PrivateHalfspaceClassifier(epsilon, class_weight="balanced", **known),
    "tree": lambda epsilon, **known: PrivateTreeClassifier(
        epsilon, class_weight="balanced", risk_share=0.1, max_depth=3, **known
    ),
    "additive": lambda epsilon, **known: PrivateAdditiveTreeClassifier(epsilon, max_depth=3, **known),
}


def fits(population: Population, seed: int, n: int, epsilon: float) -> Iterator[dict[str, Any]]:
    """Yield measures of each model, fitted to n records of a population; at most half of it."""
    order, half = np.random.default_rng(seed).permutation(len(population.labels)), len(population.labels) // 2
    train, test = order[:n], order[half:]
    truth, others = population.labels[test], population.records.iloc[test]
    for name, make in MODELS.items():
        model = make(epsilon, schema=population.schema, classes=(0, 1))
        model.fit(population.records.iloc[train], population.labels[train])
        yield {
            "family": population.family,
            "signal": population.signal,
            "n": n,
            "epsilon": epsilon,
            "model": name,
            "balanced accuracy": float(balanced_accuracy_score(truth, model.predict(others))),
            "AUC": float(roc_auc_score(truth, model.decision_function(others))),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, default=Path("choices.csv"), help="file for every fit")
    options = parser.parse_args()
    chosen = [p for p in populations(1) if p.signal != "tree" or p.family in _TREES][::2]
    rows = [row for n, e in SIZES for seed, one in enumerate(chosen) for row in fits(one, seed, n, e)]
    found = pd.DataFrame(rows)
    write_atomically(options.output, found.to_csv(index=False, float_format="%.4g"))
    strength = (found["n"] * found["epsilon"]).rename("records times epsilon")
    print(found.groupby([strength, "model"])[["balanced accuracy", "AUC"]].mean().unstack().round(3))


if __name__ == "__main__":
    main()

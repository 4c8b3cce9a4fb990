"""Choice between a scorecard, a decision tree and both together, from public facts."""

from __future__ import annotations

from dataclasses import dataclass

from privopt.mechanisms.privacy.parameters import check_count, check_epsilon

# Records times epsilon, from fits to 23 synthetic populations of 1,000 and 10,000 records at epsilon 0.1
# to 10 (experiments/model_choice.py): up to 100,000 the balanced accuracy of the choice was at most .001
# below the best in the mean, AUC, with both together at any budget there, at most .010. On nine real tables
# (experiments/trees.py) a limit of 2,000 cost .013 at epsilon 1, limits of 20,000 and more at most .007.
_TREE_UP_TO, _BOTH_UP_TO = 30_000.0, 100_000.0


@dataclass(frozen=True)
class ModelChoice:
    """The kind of model chosen for the public facts.

    Attributes:
        model: "card", "tree" or "additive".
        reason: the reason for the choice.
    """

    model: str
    reason: str


def choose_model(n_records: int, epsilon: float, *, classes: int = 2, ranking: bool = False) -> ModelChoice:
    """Choose between card, tree and their sum; no record is read.

    A tree branches on a few columns and is drawn from a finite set: it needs few records times epsilon. A
    card weighs all columns, which needs more of both and then ranks better.

    Args:
        n_records: number of records, public.
        epsilon: epsilon of the fit.
        classes: number of classes.
        ranking: whether the ranking of records matters more than their labels.
    """
    if classes > 2:
        return ModelChoice("tree", f"there are {classes} classes, for which cards were not compared")
    strength = check_count(n_records, "n_records") * check_epsilon(epsilon)
    most = _BOTH_UP_TO if ranking else _TREE_UP_TO
    simple = "additive" if ranking else "tree"
    verb = "rank" if ranking else "predict"
    if strength <= most:
        better = "a card and a tree together" if ranking else "a tree"
        return ModelChoice(
            simple,
            f"records times epsilon are {strength:.3g}, at most {most:.3g}, up to which {better} is expected "
            f"to {verb} better than a card",
        )
    return ModelChoice(
        "card",
        f"records times epsilon are {strength:.3g}, more than {most:.3g}, from which on a card is "
        f"expected to {verb} at least as well",
    )

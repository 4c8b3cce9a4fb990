"""Choice between a scorecard, a decision tree and both together, from public facts."""

from __future__ import annotations

from dataclasses import dataclass

from privopt.mechanisms.privacy.parameters import check_count, check_epsilon

# Limits on s, the number of records times epsilon, from fits to 23 synthetic populations of 1,000 and 10,000
# records at epsilon 0.01 to 10 (experiments/model_choice.py). For s up to 100,000, the balanced accuracy of
# the chosen model was on average at most .001 below that of the best model. In AUC, at s = 300 a tree was
# ahead of both together by .008 and of a card by .018; from s = 1,000 on a tree was last. A card was ahead of
# both together by .015 at s = 1,000, and by less for larger s. On nine real tables (experiments/trees.py)
# both together were ahead from s = 1,000 on, and a tree by .02 at epsilon .01 and .03. There, balanced
# accuracy at epsilon 1 was .013 lower if trees were chosen only up to s = 2,000, and at most .007 lower with
# limits of 20,000 and more.
_TREE_UP_TO, _BOTH_FROM, _BOTH_UP_TO = 30_000.0, 300.0, 100_000.0


@dataclass(frozen=True)
class ModelChoice:
    """The kind of model that was chosen from public facts.

    Attributes:
        model: "card", "tree" or "additive".
        reason: the reason for the choice.
    """

    model: str
    reason: str


def choose_model(n_records: int, epsilon: float, *, classes: int = 2, ranking: bool = False) -> ModelChoice:
    """Choose between card, tree and their sum; no record is read.

    A tree branches on a few columns and is drawn from a finite set, so it predicts labels well even if
    records times epsilon are few. A card weighs all columns; it ranks records better, but needs more records
    or a larger epsilon. The sum of card and tree shares epsilon between them. For ranking, the sum is best
    for medium epsilon, a tree alone for small epsilon, and a card alone for large epsilon.

    Args:
        n_records: number of records, public.
        epsilon: epsilon of the fit.
        classes: number of classes.
        ranking: whether the ranking of records matters more than their predicted labels.
    """
    if classes > 2:
        return ModelChoice("tree", f"there are {classes} classes, for which cards were not compared")
    strength = check_count(n_records, "n_records") * check_epsilon(epsilon)
    known = f"records times epsilon are {strength:.3g}, "
    if ranking:
        return _ranking(strength, known)
    if strength <= _TREE_UP_TO:
        known += f"at most {_TREE_UP_TO:.3g}, up to which a tree is expected to predict better than a card"
        return ModelChoice("tree", known)
    known += f"more than {_TREE_UP_TO:.3g}, from which on a card is expected to predict at least as well"
    return ModelChoice("card", known)


def _ranking(strength: float, known: str) -> ModelChoice:
    """Choose for ranking; ``known`` is the beginning of the reason."""
    if strength <= _BOTH_FROM:
        few = f"at most {_BOTH_FROM:.3g}, too few for two models that share epsilon"
        return ModelChoice("tree", f"{known}{few}: a tree is expected to rank best")
    if strength <= _BOTH_UP_TO:
        between = f"more than {_BOTH_FROM:.3g} and at most {_BOTH_UP_TO:.3g}, between which a card and a tree"
        return ModelChoice("additive", f"{known}{between} together are expected to rank better than a card")
    many = f"more than {_BOTH_UP_TO:.3g}, from which on a card is expected to rank at least as well"
    return ModelChoice("card", f"{known}{many}")

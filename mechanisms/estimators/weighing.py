"""Class weights of linear models: applied by moving the threshold of an unweighted fit, or in the losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.weights import ClassWeights

Floats = NDArray[np.float64]

# Let q be n mu per feature, divided by the ratio of the weights. Up to this q, a logistic fit without weights
# whose threshold is then moved ranked records better than a fit with weighted losses, whose noise grows with
# the largest weight. Measured on synthetic tables, some with interactions and curves that the model lacks,
# for ratios from 3 to 60: the AUC of the fit without weights was higher by .041, .009, .004 and .001 for q up
# to 10, 20, 40 and 70 (standard errors .004, .001, .0005, .0002), and by less than .001 for larger q, without
# better balanced accuracy.
_PER_RATIO = 60.0


def moved_from(n_records: int, mu: float, features: int) -> float:
    """Return the ratio of two class weights from which on they are applied by moving the threshold."""
    return n_records * mu / (_PER_RATIO * features)


@dataclass(frozen=True)
class Weighing:
    """Whether class weights move the threshold of a fit without weights, or multiply its losses.

    Moving a threshold is post-processing, as the weights are public or were released before. The odds of
    weighted records are the odds of the records times the ratio of the weights, so both ways fit the same log
    odds.

    Attributes:
        moved_from: weights whose ratio is at least this number move the threshold; others multiply the
            losses. If it is infinite, all weights multiply the losses.
    """

    moved_from: float = math.inf

    def moves(self, weights: Floats) -> bool:
        """Return whether these weights, shape (K,), move the threshold."""
        return bool(np.max(weights) >= self.moved_from * np.min(weights))

    def in_losses(self, weights: Floats) -> Floats | None:
        """Return the weights if they multiply the losses, or None if they move the threshold."""
        return None if self.moves(weights) else weights

    def moved(self, intercept: Floats, weights: Floats) -> Floats:
        """Return the intercepts of the log odds of weighted records; they change only if the weights were not
        in the losses.
        """
        if not self.moves(weights):
            return intercept
        logs = np.log(weights)
        return np.asarray(intercept + (logs[1] - logs[0] if len(logs) == 2 else logs))

    def told(self, weights: ClassWeights) -> str:
        """Return what a plan adds to the reason for its mechanism; empty if all weights are equal."""
        if weights.are_equal:
            return ""
        if weights.known is None and 1 < self.moved_from < math.inf:
            return (
                "; released class weights move the threshold of an unweighted fit if their ratio is at least "
                f"{self.moved_from:.3g}, otherwise they multiply the losses"
            )
        if self.moves(weights.most_alike):
            return "; class weights move the threshold of an unweighted fit, which needs less noise"
        return "; class weights multiply the losses"

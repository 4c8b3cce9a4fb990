"""Class weights of linear models: they move the threshold of a fit without them, or multiply its losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.weights import ClassWeights

Floats = NDArray[np.float64]

# Largest n mu per feature, divided by the ratio of the weights, at which a logistic fit without weights and
# with a moved threshold ranked records better than a fit of weighted losses, whose noise grows with the
# largest weight. On synthetic tables, some with interactions and curves that the model lacks, and for ratios
# from 3 to 60, its AUC was higher by .041, .009, .004 and .001 up to quotients of 10, 20, 40 and 70 (standard
# errors .004, .001, .0005, .0002); beyond, by less than .001, without better balanced accuracy.
_PER_RATIO = 60.0


def moved_from(n_records: int, mu: float, features: int) -> float:
    """Return the least ratio of two class weights that move the threshold of a logistic fit without them."""
    return n_records * mu / (_PER_RATIO * features)


@dataclass(frozen=True)
class Weighing:
    """Whether class weights move the thresholds of a fit without them, or multiply its losses.

    Moving a threshold is post-processing: the weights are public, or released before. The odds of weighted
    records are those of the records times the ratio of the weights, so both ways fit the same log odds.

    Attributes:
        moved_from: the least ratio of weights that move the thresholds; smaller ones multiply the losses.
            If it is infinite, all multiply the losses.
    """

    moved_from: float = math.inf

    def moves(self, weights: Floats) -> bool:
        """Return whether these weights, shape (K,), move the thresholds."""
        return bool(np.max(weights) >= self.moved_from * np.min(weights))

    def in_losses(self, weights: Floats) -> Floats | None:
        """Return the weights that multiply the losses: these, or None if they move the thresholds."""
        return None if self.moves(weights) else weights

    def moved(self, intercept: Floats, weights: Floats) -> Floats:
        """Return the intercepts of log odds of weighted records: moved if the fit was without the weights."""
        if not self.moves(weights):
            return intercept
        logs = np.log(weights)
        return np.asarray(intercept + (logs[1] - logs[0] if len(logs) == 2 else logs))

    def told(self, weights: ClassWeights) -> str:
        """Return what a plan adds to the reason for its mechanism; nothing if all weights are equal."""
        if weights.are_equal:
            return ""
        if weights.known is None and 1 < self.moved_from < math.inf:
            return (
                f"; released class weights whose ratio is at least {self.moved_from:.3g} move the threshold "
                "of a fit without them, others multiply the losses"
            )
        if self.moves(weights.most_alike):
            return "; class weights move the threshold of a fit without them, which needs less noise"
        return "; class weights multiply the losses"

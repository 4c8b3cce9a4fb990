"""Accuracy of released weights on records. NOT private."""

from __future__ import annotations

import numpy as np

from privopt.problems.convex.losses import Labels
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError


def accuracy(risk: EmpiricalRisk, w: Vector) -> float:
    """Return the share of labels -1 or +1 that equal the sign of the prediction; 0 predicts -1. NOT private.

    The risk of the training records gives the training accuracy, the risk of held-out records the test
    accuracy.
    """
    if risk.facts.loss.labels is not Labels.SIGN:
        raise InvalidInputError("accuracy needs labels -1 or +1")
    right = np.where(risk.predictions(w) > 0, 1, -1) == risk.y
    return int(risk.counts[right].sum()) / risk.facts.n_records

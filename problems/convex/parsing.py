"""Sets, regularisers and losses as text, the same in Python and on the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from privopt.problems.convex.losses import (
    BiweightLoss,
    HuberLoss,
    LogisticLoss,
    Loss,
    SigmoidLoss,
    SquaredLoss,
)
from privopt.problems.convex.regularizers import NO_REGULARIZER, ElasticNet
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.intersections import intersect
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball, LinfBall
from privopt.problems.convex.sets.simplex import Simplex
from privopt.problems.errors import InvalidInputError

LOSSES = "logistic, sigmoid, squared, huber:THRESHOLD or biweight:C"

_BALLS: dict[str, Callable[[int, float], ConvexSet]] = {
    "l1": L1Ball,
    "l2": L2Ball,
    "linf": LinfBall,
    "simplex": Simplex,
}


def parse_set(text: str, dimension: int) -> ConvexSet:
    """Parse "l1:SIZE", "l2:SIZE", "linf:SIZE", "simplex" or "simplex:SIZE" as a set in R^dimension.

    A plus sign is an intersection, as in "l1:5+linf:1"; ``intersect`` refuses one that is no set of this
    package.
    """
    return functools.reduce(intersect, [_parse_ball(part, dimension) for part in text.split("+")])


def _parse_ball(text: str, dimension: int) -> ConvexSet:
    kind, _, size = text.partition(":")
    if kind not in _BALLS or not (size or kind == "simplex"):
        raise InvalidInputError(
            f"a set is l1:SIZE, l2:SIZE, linf:SIZE or simplex[:SIZE], or several joined by +, got {text!r}"
        )
    return _BALLS[kind](dimension, _number(size or "1", text))


def parse_regularizer(text: str) -> ElasticNet:
    """Parse "none", "l1:STRENGTH", "l2:STRENGTH", or both with a plus sign, as in "l1:0.01+l2:0.1"."""
    if text == "none":
        return NO_REGULARIZER
    parts = dict(part.partition(":")[::2] for part in text.split("+"))
    if not set(parts) <= {"l1", "l2"} or len(parts) != text.count("+") + 1:
        raise InvalidInputError(
            f"a regularizer is none, l1:STRENGTH, l2:STRENGTH or l1:STRENGTH+l2:STRENGTH, got {text!r}"
        )
    return ElasticNet(**{name: _number(strength, text) for name, strength in parts.items()})


def _number(text: str, whole: str) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise InvalidInputError(f"{text!r} in {whole!r} is not a number") from error


def parse_loss(text: str, half_range: float = 1.0) -> Loss:
    """Return a loss by name, for labels in [-half_range, half_range].

    "squared" is the exact square for residuals up to 2 half_range, the width of that range.
    """
    name, _, number = text.partition(":")
    makers: dict[str, Any] = {"logistic": LogisticLoss, "sigmoid": SigmoidLoss, "biweight": BiweightLoss}
    try:
        if name == "squared" and not number:
            return SquaredLoss(2 * half_range)
        if name == "huber":
            return HuberLoss(float(number))
        made: Loss = makers[name](*([float(number)] if number else []))
        return made
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"a loss is {LOSSES}, got {text!r}") from error

"""Class weights: given, or balanced by class shares (the prevalence), declared or released privately."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.scorecards.prevalence import RAREST, PrevalencePlan
from privopt.problems.discrete.costs import Costs
from privopt.problems.errors import InvalidInputError

Floats = NDArray[np.float64]

# Costs if one class is as rare as a released prevalence can state: no released costs are larger.
RAREST_COSTS = Costs(math.ceil(10 * (1 / RAREST - 1)), 10)
# The share of epsilon for the prevalence; class counts have low sensitivity, so a small share suffices.
_PREVALENCE_SHARE = 0.05
# For trees and rule lists, the share is such that the noise on counts is about n / 50, but at least 1/20 and
# at most 1/5. On 30 synthetic populations with n times epsilon up to 1,000, wrong costs lost more accuracy
# than a draw of the tree with less epsilon.
_RECORDS_PER_NOISE, _LARGEST_SHARE = 50, 0.2


@dataclass(frozen=True)
class ClassWeights:
    """Class weights and the privacy budget of a prevalence release, from public facts.

    Attributes:
        expected: weights of the classes, shape (K,). If the prevalence is yet to be released, these are
            unequal placeholders, so that planning and booking assume a weighted loss.
        plan: the plan of the prevalence release, or None.
        epsilon, rest: the total budget, and the budget left after the prevalence release.
    """

    expected: Floats
    plan: PrevalencePlan | None
    epsilon: float
    rest: float

    @classmethod
    def of(
        cls,
        class_weight: Any,
        prevalence: Any,
        classes: NDArray[Any],
        epsilon: float,
        share: float = _PREVALENCE_SHARE,
    ) -> Self:
        """Validate the arguments; if a prevalence is to be released, set aside ``share`` of epsilon for it.

        Raises:
            InvalidInputError: class_weight is not None, "balanced" or a dict from classes to weights > 0; or
                the prevalence is invalid or not applicable.
        """
        balanced = isinstance(class_weight, str) and class_weight == "balanced"
        if prevalence is not None and not balanced:
            raise InvalidInputError(
                'prevalence is for class_weight="balanced" (--class-weight balanced) alone'
            )
        if class_weight is None:
            return cls(np.ones(len(classes)), None, epsilon, epsilon)
        if not balanced:
            return cls(_given(class_weight, classes), None, epsilon, epsilon)
        if prevalence is not None:
            return cls(_inverse(_shares(prevalence, len(classes))), None, epsilon, epsilon)
        rest = (1 - share) * epsilon
        left = math.nextafter(epsilon - rest, 0.0)  # rounded down, so that rest + left <= epsilon
        uneven = np.arange(1, len(classes) + 1)
        plan = PrevalencePlan.plan(left, len(classes))
        return cls(_inverse(uneven / np.sum(uneven)), plan, epsilon, rest)

    @property
    def are_equal(self) -> bool:
        """Whether all classes, and so all records, have the same weight; a public fact."""
        return bool(np.all(self.expected == self.expected[0]))

    @property
    def most_alike(self) -> Floats:
        """The weights; equal weights if the prevalence is yet to be released, as it may make them equal."""
        return self.expected if self.plan is None else np.ones_like(self.expected)

    @property
    def known(self) -> Floats | None:
        """The weights, or None if a prevalence is to be released first."""
        return self.expected if self.plan is None else None

    def whole(self, spend: PrivacySpend) -> PrivacySpend:
        """Add the spend of the prevalence, by basic composition, which allows adaptive choices."""
        if self.plan is None:
            return spend
        notes = (f"the prevalence at epsilon = {self.plan.epsilon:.4g}", spend.note)
        return replace(
            spend,
            epsilon=max(self.epsilon, spend.epsilon + self.plan.epsilon),
            notion="pure" if spend.notion == "pure" else "approximate",
            level=None,
            note="; ".join(note for note in notes if note),
        )

    def release(self, held: NDArray[np.int64], source: NoiseSource) -> Floats:
        """Return the weights, after releasing the prevalence from the class counts ``held`` if planned."""
        return self.expected if self.plan is None else _inverse(self.plan.release(held, source))


def prevalence_share(n_records: int, epsilon: float) -> float:
    """Return the share of epsilon for the prevalence of a tree or rule list, from public facts."""
    wanted = _RECORDS_PER_NOISE / (max(n_records, 1) * epsilon)
    return min(max(wanted, _PREVALENCE_SHARE), _LARGEST_SHARE)


def costs_of(weights: Floats) -> Costs:
    """Convert the weights of two classes (negative, positive) to costs of their misclassification."""
    return Costs.in_ratio(float(weights[1]), float(weights[0]))


def _given(class_weight: Any, classes: NDArray[Any]) -> Floats:
    known = {label: k for k, label in enumerate(classes.tolist())}
    if not isinstance(class_weight, Mapping) or not set(class_weight) <= set(known):
        named = ", ".join(map(repr, known))
        raise InvalidInputError(
            f'class_weight is None, "balanced" or a dict of weights of the classes {named}, '
            f"got {class_weight!r}"
        )
    weights = np.ones(len(classes))
    for label, weight in class_weight.items():
        number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
        if not number or not (math.isfinite(weight) and weight > 0):
            raise InvalidInputError(f"class weights must be finite numbers > 0, got {weight!r}")
        weights[known[label]] = float(weight)
    at_least: Floats = np.maximum(weights, RAREST * np.max(weights))  # as shares are limited
    return at_least


def _shares(prevalence: Any, classes: int) -> Floats:
    shares = (
        prevalence if isinstance(prevalence, Sequence | np.ndarray) else [1 - _number(prevalence), prevalence]
    )
    found = np.array([_number(share) for share in shares])
    if (
        len(found) != classes
        or np.any(found <= 0)
        or not math.isclose(float(np.sum(found)), 1.0, abs_tol=1e-6)
    ):
        raise InvalidInputError(
            "prevalence is the share of the second of two classes, in (0, 1), or a share > 0 for each of "
            f"{classes} classes that sum to 1; got {prevalence!r}"
        )
    at_least: Floats = np.maximum(found, RAREST)
    return at_least


def _number(share: Any) -> float:
    if isinstance(share, bool | str) or not isinstance(share, int | float | np.number):
        raise InvalidInputError(f"prevalence is a share in (0, 1), got {share!r}")
    return float(share)


def _inverse(shares: Floats) -> Floats:
    """Return scikit-learn's balanced weights, 1 / (number of classes x share)."""
    return np.asarray(1 / (len(shares) * shares))

"""Plans of linear fits from public facts: mechanism, noise and spend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.prepared import Outline
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.problems.notebooks import html_facts, text_of


class FitPlan(NamedTuple):
    """A fit planned before the booking.

    Attributes:
        seen: the outline of its table.
        weights: class weights, or the plan that releases them.
        afterwards: whether weights of two classes move the threshold of a fit without them.
        planned: class weights, shape (K,), or None -> the calibrated mechanism.
        mechanism: the mechanism for the expected class weights.
        reason: why this mechanism.
    """

    seen: Outline
    weights: ClassWeights
    afterwards: bool
    planned: Callable[[NDArray[np.float64] | None], RiskMechanism]
    mechanism: RiskMechanism
    reason: str

    def again(self, carried: NDArray[np.float64]) -> RiskMechanism:
        """Return the mechanism for class weights that were released."""
        return self.planned(None if self.afterwards else carried)

    def spend(self, source: NoiseSource) -> PrivacySpend:
        """Return the spend of the fit, with that of class weights."""
        one = spent(self.mechanism, source)
        note = f"one-vs-rest: {one.note}" if self.seen.releases > 1 else one.note
        return self.weights.whole(replace(one, note=note))


@dataclass(frozen=True, eq=False)
class LinearPlan:
    """Plan of a linear model, made without data.

    Attributes:
        mechanism: the calibrated mechanism.
        reason: why this mechanism.
        spend: the privacy spend of the whole fit.
    """

    mechanism: RiskMechanism
    reason: str
    spend: PrivacySpend

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The noise against the signal that it perturbs."""
        return self.mechanism.noise_to_signal

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain numbers and strings."""
        made = self.mechanism
        return {
            **self.spend.to_dict(),
            **made.noise,
            "steps": made.schedule.get("steps", 1),
            "mechanism": made.name,
            "mechanism_reason": self.reason,
            "weights": made.facts.dimension,
            "noise_to_signal": self.noise_to_signal.ratio,
        }

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        made, ratio = self.mechanism, self.noise_to_signal
        steps = made.schedule.get("steps")
        noise = ", ".join(f"{key} = {value:.6g}" for key, value in made.noise.items())
        return {
            "mechanism": f"{made.name} ({self.reason})",
            "spend": str(self.spend),
            **({"in detail": self.spend.note} if self.spend.note else {}),
            "weights": f"{made.facts.dimension:,}",
            f"noise on {made.noised}": noise,
            "noise / signal": str(ratio),
            **({"warning": ratio.warning} if ratio.warning else {}),
            **({"steps": f"{steps:,}, each reads the table once"} if steps else {}),
        }

    def __str__(self) -> str:
        return text_of(self.facts)

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return html_facts("Plan of a linear model", self.facts)

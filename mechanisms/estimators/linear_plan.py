"""Plans of linear fits from public facts: mechanism, noise and spend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.estimators.prepared import Outline
from privopt.mechanisms.estimators.weighing import Weighing
from privopt.mechanisms.estimators.weights import ClassWeights
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.reliance import spent
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.mechanism import RiskMechanism
from privopt.problems.notebooks import PlanInWords

if TYPE_CHECKING:
    from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton
    from privopt.mechanisms.heavy_tails.measured_descent import MeasuredDescent


class FitPlan(NamedTuple):
    """A fit planned before the booking.

    Attributes:
        seen: the outline of the table.
        weights: class weights, or the plan that releases them.
        weighing: which class weights are applied by moving the threshold of an unweighted fit.
        planned: a function from class weights, shape (K,), or None to the calibrated mechanism.
        mechanism: the mechanism for the expected class weights.
        reason: why this mechanism was chosen.
    """

    seen: Outline
    weights: ClassWeights
    weighing: Weighing
    planned: Callable[[NDArray[np.float64] | None], RiskMechanism]
    mechanism: RiskMechanism
    reason: str

    def again(self, carried: NDArray[np.float64]) -> RiskMechanism:
        """Return the mechanism for class weights that were released after the plan was made."""
        return self.planned(self.weighing.in_losses(carried))

    def spend(self, source: NoiseSource) -> PrivacySpend:
        """Return the spend of the fit, including the spend of releasing class weights."""
        one = spent(self.mechanism, source)
        note = f"one-vs-rest: {one.note}" if self.seen.releases > 1 else one.note
        return self.weights.whole(replace(one, note=note))


@dataclass(frozen=True, eq=False)
class LinearPlan(PlanInWords):
    """Plan of a linear model, made without data.

    Attributes:
        mechanism: the calibrated mechanism.
        reason: why this mechanism was chosen.
        spend: the privacy spend of the whole fit.
    """

    title: ClassVar[str] = "Plan of a linear model"
    mechanism: RiskMechanism | ClippedNewton | MeasuredDescent
    reason: str
    spend: PrivacySpend

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The noise, compared with the signal that it perturbs."""
        return self.mechanism.noise_to_signal

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain numbers and strings."""
        made = self.mechanism
        return {
            **self.spend.to_dict(),
            **made.noise,
            "steps": self._steps or 1,
            "mechanism": made.name,
            "mechanism_reason": self.reason,
            "weights": self._weights,
            "noise_to_signal": self.noise_to_signal.ratio,
        }

    @property
    def _weights(self) -> int:
        """The number of weights of a release, including the weight of the constant."""
        made = self.mechanism
        return made.facts.dimension if isinstance(made, RiskMechanism) else made.dimension + 1

    @property
    def _steps(self) -> int | None:
        """The number of steps; None for a mechanism without steps."""
        made = self.mechanism
        steps: int | None = made.schedule.get("steps") if isinstance(made, RiskMechanism) else made.steps
        return steps

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        made, ratio = self.mechanism, self.noise_to_signal
        noise = ", ".join(f"{key} = {value:.6g}" for key, value in made.noise.items())
        return {
            "mechanism": f"{made.name} ({self.reason})",
            "spend": str(self.spend),
            **({"in detail": self.spend.note} if self.spend.note else {}),
            "weights": f"{self._weights:,}",
            **({} if isinstance(made, RiskMechanism) else {"units": _units(made)}),
            f"noise on {made.noised}": noise,
            "noise / signal": str(ratio),
            **({"warning": ratio.warning} if ratio.warning else {}),
            **({"steps": f"{self._steps:,}, each reads the table once"} if self._steps else {}),
        }


def _units(made: ClippedNewton | MeasuredDescent) -> str:
    """Say whether columns without declared bounds are rescaled."""
    if made.search is not None:
        return "found privately"
    return "none: there are too few records at this epsilon to find them, and columns are not rescaled"

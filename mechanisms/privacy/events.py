"""Events: the parameters of sampled releases, kept beside (epsilon, delta) so that they compose tightly.

The level of a pure, GDP or zCDP spend is enough to compose it. A release on Poisson batches has a privacy
profile of its own, of which (epsilon, delta) is one point; several compose much better by their privacy
losses (``profiles``) than by such points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Self

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon, check_positive


@dataclass(frozen=True)
class SampledGaussian:
    """Gaussian releases on Poisson batches, and possibly some on all records, of one plan.

    Attributes:
        epsilon, delta: the pair that the plan states; an event belongs to a spend with this pair only.
        z: noise of the sampled releases, in units of the bound on one contribution (``poisson``).
        q: sampling probability, in (0, 1].
        steps: number of sampled releases.
        full_z, full_steps: noise of the releases on all records, and their number; None and 0 if none.
        distance: total variation distance of all noise from continuous Gaussians.
        mu, disclosed: the plan is at least as private as one release that is mu-GDP, but discloses everything
            with probability ``disclosed`` (``profiles.with_gaussian``); None where that was not computed.
    """

    kind: ClassVar[str] = "sampled-gaussian/1"

    epsilon: float
    delta: float
    z: float
    q: float
    steps: int
    full_z: float | None = None
    full_steps: int = 0
    distance: float = 0.0
    mu: float | None = None
    disclosed: float | None = None

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon), check_delta(self.delta), check_positive(self.z, "z")
        if check_positive(self.q, "q") > 1:
            raise PrivacyParameterError(f"the sampling probability must lie in (0, 1], got {self.q}")
        check_count(self.steps, "steps")
        if (self.full_z is None) != (self.full_steps == 0):
            raise PrivacyParameterError("full_z and full_steps are given together")
        if self.full_z is not None:
            check_positive(self.full_z, "full_z"), check_count(self.full_steps, "full_steps")
        check_delta(self.distance, zero_allowed=True)
        if (self.mu is None) != (self.disclosed is None):
            raise PrivacyParameterError("mu and disclosed are given together")
        if self.mu is not None and self.disclosed is not None:
            check_positive(self.mu, "mu"), check_delta(self.disclosed)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        found = asdict(self)
        if self.mu is None:  # as before there were such fields
            del found["mu"], found["disclosed"]
        return {"kind": self.kind, **found}

    @classmethod
    def from_dict(cls, record: object) -> Self:
        """Read ``to_dict`` back.

        Raises:
            PrivacyParameterError: another kind, or a missing, unknown or invalid field.
        """
        if not isinstance(record, Mapping) or record.get("kind") != cls.kind:
            raise PrivacyParameterError("the event of a spend is of a kind that this version does not know")
        try:
            return cls(**{name: value for name, value in record.items() if name != "kind"})
        except TypeError:
            raise PrivacyParameterError("the event of a spend has other fields than its kind") from None

    def delta_of_grid(self, epsilon: float) -> float:
        """Return what noise on a grid adds to delta at ``epsilon``."""
        return (1 + math.exp(min(epsilon, 700.0))) * self.distance

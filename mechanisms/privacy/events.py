"""Events: the parameters of some releases, kept beside (epsilon, delta) so that they compose tightly.

To compose a pure, GDP or zCDP spend, its epsilon, mu or rho is enough. A release on Poisson batches, or the
best of a random number of Gaussian releases, has a privacy profile of its own, of which (epsilon, delta) is
one point. Several such releases compose much better by their profiles (``profiles``) than by such points.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon, check_positive
from privopt.problems.arguments import check_real


class _Event:
    """Base of all kinds of events: the stated (epsilon, delta), and the Gaussian release that covers the
    event, if known.
    """

    kind: ClassVar[str]

    epsilon: float
    delta: float
    mu: float | None
    disclosed: float | None

    def _check(self) -> None:
        """Check the fields that all kinds have."""
        check_epsilon(self.epsilon), check_delta(self.delta)
        if (self.mu is None) != (self.disclosed is None):
            raise PrivacyParameterError("mu and disclosed are given together")
        if self.mu is not None and self.disclosed is not None:
            check_positive(self.mu, "mu"), check_delta(self.disclosed)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; ``read_event`` reads it back."""
        found = asdict(self)  # type: ignore[call-overload]  # every kind is a dataclass
        if self.mu is None:  # as in older versions, which had no such fields
            del found["mu"], found["disclosed"]
        return {"kind": self.kind, **found}


@dataclass(frozen=True)
class SampledGaussian(_Event):
    """Gaussian releases on Poisson batches, and possibly some on all records, of one plan.

    Attributes:
        epsilon, delta: the pair that the plan states; an event belongs to a spend with this pair only.
        z: standard deviation of the noise of the sampled releases, in units of the bound on one contribution
            (``poisson``).
        q: sampling probability, in (0, 1].
        steps: number of sampled releases.
        full_z, full_steps: the same for the releases on all records, and their number; None and 0 if none.
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
        self._check()
        check_positive(self.z, "z")
        if check_positive(self.q, "q") > 1:
            raise PrivacyParameterError(f"the sampling probability must lie in (0, 1], got {self.q}")
        check_count(self.steps, "steps")
        if (self.full_z is None) != (self.full_steps == 0):
            raise PrivacyParameterError("full_z and full_steps are given together")
        if self.full_z is not None:
            check_positive(self.full_z, "full_z"), check_count(self.full_steps, "full_steps")
        check_delta(self.distance, zero_allowed=True)

    def delta_of_grid(self, epsilon: float) -> float:
        """Return what noise on a grid adds to delta at ``epsilon``."""
        return (1 + math.exp(min(epsilon, 700.0))) * self.distance


@dataclass(frozen=True)
class SelectedGaussian(_Event):
    """The best of a random number of mu-GDP runs (``run_counts``).

    Attributes:
        epsilon, delta: the pair that the plan states; an event belongs to a spend with this pair only.
        run_mu: the level of every run.
        mean, shape: parameters of the law of the number of runs (``RunCounts``).
        mu, disclosed: as of ``SampledGaussian``.
    """

    kind: ClassVar[str] = "selected-gaussian/1"

    epsilon: float
    delta: float
    run_mu: float
    mean: float
    shape: float
    mu: float | None = None
    disclosed: float | None = None

    def __post_init__(self) -> None:
        self._check()
        check_positive(self.run_mu, "run_mu")
        if not check_positive(self.mean, "mean") > 1 or not check_real(self.shape, "shape") >= 0:
            raise PrivacyParameterError("a random number of runs has a mean > 1 and a shape >= 0")


Event = SampledGaussian | SelectedGaussian


def read_event(record: object) -> Event:
    """Read ``to_dict`` of an event back.

    Raises:
        PrivacyParameterError: an unknown kind, or a missing, unknown or invalid field.
    """
    kinds: dict[object, type[Event]] = {kind.kind: kind for kind in (SampledGaussian, SelectedGaussian)}
    if not isinstance(record, Mapping) or record.get("kind") not in kinds:
        raise PrivacyParameterError("the event of a spend is of a kind that this version does not know")
    try:
        return kinds[record["kind"]](**{name: value for name, value in record.items() if name != "kind"})
    except TypeError:
        raise PrivacyParameterError("the event of a spend has other fields than its kind") from None

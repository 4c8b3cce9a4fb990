"""Plans for tables of unbounded records, of a public number of rows and columns, and what they release."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.gradient_noise import VectorNoise, gaussian_releases
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.options import check_options


@dataclass(frozen=True)
class TableTarget:
    """Target of a plan: the public shape of a table and a budget, all checked.

    Attributes:
        n_records: n.
        dimension: d, the length of the released vector.
        epsilon, delta: the budget.
    """

    n_records: int
    dimension: int
    epsilon: float
    delta: float

    @property
    def mu(self) -> float:
        """The budget as Gaussian differential privacy."""
        return gaussian_mu(self.epsilon, self.delta)

    def gaussian(
        self, name: str, *, sensitivity: float, n_records: int | None = None
    ) -> tuple[VectorNoise, PrivacySpend]:
        """Calibrate the noise of a released vector, a mean of ``n_records`` terms of this l2 sensitivity."""
        return gaussian_releases(
            self.epsilon,
            self.delta,
            name,
            steps=1,
            releases=1,
            sensitivity=sensitivity,
            dimension=self.dimension,
            n_records=self.n_records if n_records is None else n_records,
        )


class TableMechanism(ABC):
    """Private vector of a table. An instance is a plan: noise and spend, fixed before data.

    Class attributes: ``name``; ``noised``, the noised quantity.
    """

    name: ClassVar[str]
    noised: ClassVar[str]

    @classmethod
    def plan(cls, n_records: int, dimension: int, *, epsilon: float, delta: float, **options: Any) -> Self:
        """Calibrate to public facts.

        Args:
            n_records: n.
            dimension: d.
            epsilon, delta: the privacy target.
            options: options of the class, by name: the arguments of its ``_calibrated``.

        Raises:
            PrivacyParameterError: a parameter out of range, or an option that the class does not have.
        """
        check_options(cls, options)
        n, d = check_count(n_records, "n_records"), check_count(dimension, "dimension")
        return cls._calibrated(TableTarget(n, d, check_epsilon(epsilon), check_delta(delta)), **options)

    @classmethod
    @abstractmethod
    def _calibrated(cls, target: TableTarget, *args: Any, **options: Any) -> Self:
        """Return the plan for a target; a subclass names its options."""

    @property
    @abstractmethod
    def noise(self) -> dict[str, float]:
        """Public parameters of the noise."""

"""Plan of a private choice of columns for least squares."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.mechanism import Release
from privopt.mechanisms.discrete.preparation import check_takes, oracle_for, prepare_oracle
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.errors import UnfinishedDrawError
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.limits import Limits
from privopt.problems.datasets.synthetic import SparseDesign
from privopt.problems.discrete.supports import BestSubset, SubsetBounds, SupportLattice, too_large
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class SubsetPlan:
    """One draw of s of p columns by the exponential mechanism with the restricted squared loss.

    Privacy: as for ``choice``, epsilon-differential privacy (pure), neighbours by replacing one record; n, p
    and the bounds are public. Running time, and whether a draw stayed within its limits, are outside the
    guarantee.

    Attributes:
        choice: the plan of the draw.
        bounds: the bounds of records and weights.
    """

    name: ClassVar[str] = "best-subset"
    noised: ClassVar[str] = "the choice of columns"

    choice: ExponentialMechanism
    bounds: SubsetBounds

    @classmethod
    def plan(cls, features: int, size: int, bounds: SubsetBounds, *, epsilon: float) -> Self:
        """Plan from public facts: the number of columns, of columns to choose, bounds and epsilon.

        Raises:
            InvalidInputError: a number of columns that cannot be chosen.
            PrivacyParameterError: epsilon out of range.
        """
        lattice = SupportLattice(features, size)
        return cls(ExponentialMechanism.plan(BestSubset, lattice, epsilon=epsilon), bounds)

    @property
    def lattice(self) -> SupportLattice:
        assert isinstance(self.choice.lattice, SupportLattice)
        return self.choice.lattice

    def noise_to_signal(self, n_records: int) -> NoiseToSignal:
        """Compare a bound on the squared loss that a draw is expected to add with a bound on the squared loss
        of zero weights.

        Losses of subsets lie between 0 and n label^2. The best of N subsets has a probability of at most 1 /
        (1 + (N - 1) exp(-beta n label^2)), which is N / (2 N - 1) where the two bounds are equal.
        """
        worst = self.bounds.largest_loss(self.lattice.support)  # ``choice`` counts in parts of it
        added = self.choice.excess * worst / self.choice.loss_bound
        return NoiseToSignal(
            added, check_count(n_records, "n_records") * self.bounds.label**2, "total squared loss"
        )

    def check_records(self, records: int, oracle: str | GibbsOracle = "auto") -> None:
        """Refuse what ``release`` cannot draw, from public numbers.

        Raises:
            InvalidInputError: more records or columns than can be handled.
            OracleError: an oracle that is unknown, or that may refuse some table of so many records.
        """
        if reasons := too_large(records, self.lattice):
            raise InvalidInputError(f"a subset of columns cannot be drawn: {'; '.join(reasons)}")
        choice = self.choice
        largest = records * choice.loss_bound
        facts = ProblemFacts(
            BestSubset, choice.question, self.lattice, records, largest, precision=choice.precision
        )
        check_takes(oracle_for(oracle, choice), self.name, facts, "fewer columns or records")

    def release(
        self,
        X: ArrayLike,
        y: ArrayLike,
        noise: NoiseSource | None = None,
        limits: Limits | None = None,
        oracle: str | GibbsOracle = "auto",
    ) -> Release:
        """Draw once; the point is the 0/1 mask of the chosen columns, shape (p,).

        Raises:
            InvalidInputError: records of another shape, or not finite.
            UnfinishedDrawError: a limit of time or memory was reached; nothing is released.
            OracleError: too many records for the arithmetic at this epsilon; ``check_records`` finds this
                before data.
        """
        problem = BestSubset(X, y, self.lattice, self.bounds)
        return self.choice.release(prepare_oracle(oracle, self.choice, problem), noise, limits)

    def recovery(
        self, design: SparseDesign, n: int, *, tables: int = 20, seed: int = 0, limits: Limits | None = None
    ) -> float:
        """Return the share of synthetic tables of n records in which the informative columns are drawn.

        No records are read: tables are drawn from the design.

        Args:
            design: the law of the tables; it has the columns of the plan, and as many informative ones.
            n: number of records.
            tables: number of tables, with one draw each.
            seed: of the tables and of the draws, which read no records.
            limits: of each draw; one that reaches them counts as a miss, since it releases nothing.
        """
        if (design.features, design.informative) != (self.lattice.dimension, self.lattice.support):
            raise InvalidInputError(
                f"the design has {design.informative} of {design.features} columns, the plan is for "
                f"{self.lattice}"
            )
        rng, source = np.random.default_rng(seed), NoiseSource(insecure_seed=seed)
        hits = 0
        for _ in range(tables):
            X, y = design.table(n, rng)
            with suppress(UnfinishedDrawError):
                point = self.release(X, y, source, limits).point
                hits += bool(np.array_equal(np.flatnonzero(point), design.support))
        return hits / tables


def support_mask(release: Release) -> NDArray[np.bool_]:
    """Return the chosen columns as a mask, shape (p,)."""
    return np.asarray(release.point, dtype=bool)

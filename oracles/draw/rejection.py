"""Exact draws from a constrained lattice, by rejection of draws from the box around it."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.draw.interface import (
    DrawRequest,
    Exactness,
    GibbsOracle,
    Law,
    Sample,
    Sampler,
    stop_if_asked,
)
from privopt.oracles.errors import UnfinishedDrawError
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.problem import DiscreteProblem
from privopt.problems.programs.lattice import ConstrainedLattice

# Draws from the box after which there is no point.
_MOST = 100_000


@dataclass(frozen=True)
class GibbsRejection(GibbsOracle):
    """Rejection sampler for the Gibbs law over a ``ConstrainedLattice``.

    A Gibbs draw from the box, given that it satisfies the constraints, has the Gibbs law of the constrained
    lattice: the weights are the same, and only their sum differs. That is not so for permute-and-flip, where
    points outside could win and would be drawn again. The expected number of draws is one over the
    probability of the constraints under the law of the box: it depends on the records, as running times do.

    Args:
        inner: sampler over the box.
    """

    inner: GibbsOracle
    name: ClassVar[str] = "gibbs-rejection"
    takes_constraints: ClassVar[bool] = True

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        if not isinstance(problem, ZeroOneHalfspace):
            return [f"draws for ZeroOneHalfspace, not {type(problem).__name__}"]
        if not isinstance(problem.lattice, ConstrainedLattice):
            return ["the lattice has no constraints: every draw would be kept"]
        if law is not Law.GIBBS:
            return ["draws from the Gibbs law only: rejection would change permute-and-flip"]
        return self.inner.all_refusals(_over_box(problem), law)

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        assert isinstance(problem, ZeroOneHalfspace)  # by refusals
        lattice = problem.lattice
        assert isinstance(lattice, ConstrainedLattice)
        return _Rejecting(lattice, self.inner.build(_over_box(problem), law))


@dataclass(frozen=True)
class _Rejecting(Sampler):
    lattice: ConstrainedLattice
    inner: Sampler

    def draw(self, request: DrawRequest) -> Sample:
        nodes = 0
        for _ in range(_MOST):
            stop_if_asked(request.watch, nodes)
            sample = self.inner.draw(request)
            nodes += sample.nodes
            if self.lattice.contains(sample.point):
                # P[w] / P[constraints]: both may be off. Mass may be lost at each draw up to the last one.
                error, lost = 2 * sample.exactness.log_error, _MOST * sample.exactness.lost_mass
                return Sample(sample.point, Exactness(error, lost), None, nodes)
        raise UnfinishedDrawError(
            f"none of {_MOST} draws from the box satisfies the constraints: no point was drawn. To do: a "
            "smaller lattice, whose points can be enumerated, or bounds that leave out more of the box"
        )


def _over_box(problem: ZeroOneHalfspace) -> ZeroOneHalfspace:
    """Return the problem over the box around a constrained lattice."""
    lattice = problem.lattice
    assert isinstance(lattice, ConstrainedLattice)
    relaxed = copy.copy(problem)
    relaxed.lattice = lattice.box
    return relaxed

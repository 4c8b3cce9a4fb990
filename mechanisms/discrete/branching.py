"""Size limits of trees and rule lists, and the cost of drawing one, from public facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from privopt.mechanisms.discrete.exponential import ExponentialMechanism
from privopt.mechanisms.discrete.preparation import check_takes
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.oracles.draw.interface import GibbsOracle
from privopt.oracles.facts import ProblemFacts
from privopt.problems.arguments import told
from privopt.problems.discrete.branching import MOST_LEVELS, BranchingProblem
from privopt.problems.discrete.branching_effort import BranchingEffort
from privopt.problems.discrete.cost_matrix import CostMatrix
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError

# Up to this number of predicates "auto" has four levels, otherwise three. Because of the prior, no private
# choice of the depth is needed: on eight public tables this rule was within .003 of the best public rule for
# the depth at any epsilon.
_FEW_PREDICATES = 60


@dataclass(frozen=True)
class BranchingPlan:
    """The plan of a tree or a rule list, made without data.

    Privacy: as for the exponential mechanism, whose plan is ``choice``. The prior is the uniform distribution
    on the lattice, in which a predicate of weight k is represented by k values. Prior and levels are fixed
    before data are read.

    Attributes:
        levels: the largest number of predicates in a prediction.
        choice: the plan of the draw.
        costs: costs of errors.
        effort: work and memory of counting records and summing weights of models.
        reason: the reason for the number of levels.
        values: the sum of the weights of the predicates.
        predicates: the number of predicates.
    """

    levels: int
    choice: ExponentialMechanism
    costs: CostMatrix
    effort: BranchingEffort
    reason: str
    values: int
    predicates: int

    @classmethod
    def plan(
        cls,
        kind: type[BranchingProblem],
        weights: IntArray,
        rows: int,
        *,
        epsilon: float,
        costs: CostMatrix,
        max_levels: int | str = "auto",
        root_splits: bool = False,
    ) -> Self:
        """Plan from public facts.

        Args:
            kind: trees or rule lists.
            weights: weights of the predicates in the prior, public whole numbers >= 1, shape (p,).
            rows: largest possible number of rows.
            epsilon: epsilon of the draw.
            costs: costs of errors.
            max_levels: 1 to 4, or "auto".
            root_splits: whether constant models are excluded.

        Raises:
            InvalidInputError: another number of levels, or more work or memory than the limits.
            PrivacyParameterError: epsilon out of range.
        """
        predicates = len(weights)
        if max_levels == "auto":
            levels, reason = _levels(predicates, rows, costs.classes)
        else:
            levels, reason = _checked(max_levels), "it was asked for"
        effort = BranchingEffort.of(predicates, levels, rows, costs.classes)
        if effort.refusals:
            raise InvalidInputError(
                f"{levels} level(s) over {predicates} predicates take {' and '.join(effort.refusals)}. To "
                "do: fewer levels, or a schema with fewer columns, bins or categories"
            )
        values = int(np.sum(weights))
        lattice = kind.domain(values, levels, costs.classes, root_splits=root_splits)
        choice = ExponentialMechanism.plan(kind, lattice, epsilon=epsilon, loss_bound=costs.largest)
        return cls(levels, choice, costs, effort, reason, values, predicates)

    def check_records(self, n_records: int, rows: int, oracle: GibbsOracle) -> None:
        """Refuse an oracle whose draws may be too coarse for some table with as many records and rows.

        Raises:
            OracleError: it may refuse one.
        """
        choice = self.choice
        facts = ProblemFacts(
            choice.problem_type,
            choice.question,
            choice.lattice,
            rows,
            n_records * choice.loss_bound,
            predicates=self.predicates,
            precision=choice.precision,
        )
        check_takes(oracle, choice.name, facts, "fewer levels or predicates")

    def noise_to_signal(self, n_records: int) -> NoiseToSignal:
        """Compare the expected excess over any model of one predicate with half of what n records can lose.

        Let q be the prior mass of all models that predict like a given model of one predicate. It is at least
        the product of 1 / values for the predicate, 1/2 for each decision to split or to stop, and 1 /
        (classes (classes - 1)) for the two different labels. Of all laws, the law of the draw has the least
        sum of the mean of beta L and the divergence from the prior. So the mean of L over draws is at most L
        of the given model plus log(1/q) / beta.
        """
        rare = math.log(8 * self.costs.classes * (self.costs.classes - 1) * self.values)
        largest = check_count(n_records, "n_records") * self.choice.loss_bound / 2
        return NoiseToSignal(rare / self.choice.beta, largest, "total loss of a split")


def _levels(predicates: int, rows: int, classes: int) -> tuple[int, str]:
    """Return the largest number of levels for "auto" within the limits, and the reason."""
    usual = MOST_LEVELS if predicates <= _FEW_PREDICATES else MOST_LEVELS - 1
    few = "at most" if predicates <= _FEW_PREDICATES else "more than"
    reason = f"the schema has {predicates} predicates, {few} {_FEW_PREDICATES}"
    for levels in range(usual, 1, -1):
        if not BranchingEffort.of(predicates, levels, rows, classes).refusals:
            return levels, reason
        reason = f"{predicates} predicates and {rows} rows are too many for {levels} levels"
    return 1, reason


def _checked(levels: object) -> int:
    if not isinstance(levels, int | np.integer) or type(levels) is bool or not 1 <= levels <= MOST_LEVELS:
        raise InvalidInputError(
            f'the most levels are a whole number from 1 to {MOST_LEVELS}, or "auto"; got {told(levels)}'
        )
    return int(levels)

"""Public facts about a problem, known before data: bounds that hold whatever the table is."""

from __future__ import annotations

from dataclasses import dataclass

from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.layout import Layout
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass(frozen=True)
class Precision:
    """Exactness that a plan needs of a draw at its inverse temperature.

    Attributes:
        beta: the inverse temperature.
        log_error: the largest error of the logarithm of a probability.
        lost_mass: the largest probability with which that bound may fail.
    """

    beta: float
    log_error: float
    lost_mass: float


@dataclass(frozen=True)
class ProblemFacts:
    """The public worst case of a problem: an oracle that accepts it must accept every table within it.

    Attributes:
        kind: the type of the problem.
        question: the ``Task`` or the ``Law`` that the oracle is asked for.
        lattice: the points.
        rows: the largest number of distinct rows.
        largest_loss: the largest loss of a point.
        largest_score: the largest |<w, x>|, for losses of scores.
        layout: the declared indicator columns; None: there are none.
        predicates: the number of predicates of trees and rule lists.
        precision: the exactness that the plan needs of a draw; None: none.
    """

    kind: type[DiscreteProblem]
    question: object
    lattice: IntegerLattice
    rows: int
    largest_loss: int
    largest_score: int = 0
    layout: Layout | None = None
    predicates: int = 0
    precision: Precision | None = None

"""Public facts about a problem: bounds that are known before data are read, and hold for every table."""

from __future__ import annotations

from dataclasses import dataclass

from privopt.problems.discrete.lattice import IntegerLattice
from privopt.problems.discrete.layout import Layout
from privopt.problems.discrete.problem import DiscreteProblem


@dataclass(frozen=True)
class Precision:
    """The exactness that a plan requires of a draw.

    Attributes:
        beta: the inverse temperature of the draw.
        log_error: the largest tolerated error of the logarithm of a probability.
        lost_mass: the largest tolerated probability that the bound ``log_error`` fails.
    """

    beta: float
    log_error: float
    lost_mass: float


@dataclass(frozen=True)
class ProblemFacts:
    """The public worst case of a problem: an oracle that accepts it must accept every table with these facts.

    Attributes:
        kind: the type of the problem.
        question: the ``Task`` or the ``Law`` of the question to the oracle.
        lattice: the points.
        rows: the largest possible number of distinct rows.
        largest_loss: the largest possible loss of a point.
        largest_score: the largest possible |<w, x>|, for losses that depend on it.
        layout: the declared indicator columns; None if there are none.
        predicates: the number of predicates of trees and rule lists.
        precision: the exactness that the plan requires of a draw; None if it requires none.
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

"""Problems as data: losses, lattices, convex sets, tables. Imports no solver and no mechanism."""

if __name__ != "privopt.problems":
    raise ImportError("import privopt.problems: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

if TYPE_CHECKING:  # at run time each is imported when it is asked for
    from privopt.problems.discrete.conjunction import MonotoneConjunction, MonotoneDisjunction
    from privopt.problems.discrete.costs import Costs
    from privopt.problems.discrete.halfspace import ZeroOneHalfspace
    from privopt.problems.discrete.lattice import IntegerLattice
    from privopt.problems.discrete.objective import Perturbation
    from privopt.problems.discrete.problem import DiscreteProblem, SeparatorSet
    from privopt.problems.errors import (
        InfeasibleDomainError,
        InvalidInputError,
        PrivacyLeakWarning,
        PrivOptError,
    )
    from privopt.problems.tables.columns import Binned, Categorical, Numeric
    from privopt.problems.tables.counted import CountedRecords
    from privopt.problems.tables.engines import count_records, open_table
    from privopt.problems.tables.missing import MissingLevel
    from privopt.problems.tables.reading import read_table
    from privopt.problems.tables.rules import PointRule
    from privopt.problems.tables.schema import Schema
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Binned",
    "Categorical",
    "Costs",
    "CountedRecords",
    "DiscreteProblem",
    "InfeasibleDomainError",
    "IntegerLattice",
    "InvalidInputError",
    "MissingLevel",
    "MonotoneConjunction",
    "MonotoneDisjunction",
    "Numeric",
    "Perturbation",
    "PointRule",
    "PrivOptError",
    "PrivacyLeakWarning",
    "Schema",
    "SeparatorSet",
    "ZeroOneHalfspace",
    "count_records",
    "open_table",
    "read_table",
]

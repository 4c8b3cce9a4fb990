"""Problems as data: losses, lattices, convex sets, tables. Imports no solver and no mechanism."""

if __name__ != "privopt.problems":
    raise ImportError("import privopt.problems: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

# The module of each public name: it is imported when the name is asked for.
_HOMES = {
    "AbsoluteRegression": "discrete.lipschitz",
    "Binned": "tables.columns",
    "Categorical": "tables.columns",
    "ConstrainedLattice": "programs.lattice",
    "Constraint": "programs.constraints",
    "CostMatrix": "discrete.cost_matrix",
    "Costs": "discrete.costs",
    "CountedRecords": "tables.counted",
    "Date": "tables.dates",
    "DecisionTree": "discrete.tree",
    "DiscreteProblem": "discrete.problem",
    "HingeHalfspace": "discrete.lipschitz",
    "InfeasibleDomainError": "errors",
    "IntegerLattice": "discrete.lattice",
    "InvalidInputError": "errors",
    "MissingLevel": "tables.missing",
    "MonotoneConjunction": "discrete.conjunction",
    "MonotoneDisjunction": "discrete.conjunction",
    "Numeric": "tables.columns",
    "Perturbation": "discrete.objective",
    "PointRule": "tables.rules",
    "PrivOptError": "errors",
    "PrivacyLeakWarning": "errors",
    "RuleList": "discrete.rule_list",
    "Schema": "tables.schema",
    "SeparatorSet": "discrete.problem",
    "ZeroOneHalfspace": "discrete.halfspace",
    "count_records": "tables.engines",
    "open_table": "tables.sources",
    "parse_constraint": "programs.parsing",
    "read_table": "tables.reading",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # the same names, for type checkers
    from privopt.problems.discrete.conjunction import MonotoneConjunction as MonotoneConjunction
    from privopt.problems.discrete.conjunction import MonotoneDisjunction as MonotoneDisjunction
    from privopt.problems.discrete.cost_matrix import CostMatrix as CostMatrix
    from privopt.problems.discrete.costs import Costs as Costs
    from privopt.problems.discrete.halfspace import ZeroOneHalfspace as ZeroOneHalfspace
    from privopt.problems.discrete.lattice import IntegerLattice as IntegerLattice
    from privopt.problems.discrete.lipschitz import AbsoluteRegression as AbsoluteRegression
    from privopt.problems.discrete.lipschitz import HingeHalfspace as HingeHalfspace
    from privopt.problems.discrete.objective import Perturbation as Perturbation
    from privopt.problems.discrete.problem import DiscreteProblem as DiscreteProblem
    from privopt.problems.discrete.problem import SeparatorSet as SeparatorSet
    from privopt.problems.discrete.rule_list import RuleList as RuleList
    from privopt.problems.discrete.tree import DecisionTree as DecisionTree
    from privopt.problems.errors import InfeasibleDomainError as InfeasibleDomainError
    from privopt.problems.errors import InvalidInputError as InvalidInputError
    from privopt.problems.errors import PrivacyLeakWarning as PrivacyLeakWarning
    from privopt.problems.errors import PrivOptError as PrivOptError
    from privopt.problems.programs.constraints import Constraint as Constraint
    from privopt.problems.programs.lattice import ConstrainedLattice as ConstrainedLattice
    from privopt.problems.programs.parsing import parse_constraint as parse_constraint
    from privopt.problems.tables.columns import Binned as Binned
    from privopt.problems.tables.columns import Categorical as Categorical
    from privopt.problems.tables.columns import Numeric as Numeric
    from privopt.problems.tables.counted import CountedRecords as CountedRecords
    from privopt.problems.tables.dates import Date as Date
    from privopt.problems.tables.engines import count_records as count_records
    from privopt.problems.tables.missing import MissingLevel as MissingLevel
    from privopt.problems.tables.reading import read_table as read_table
    from privopt.problems.tables.rules import PointRule as PointRule
    from privopt.problems.tables.schema import Schema as Schema
    from privopt.problems.tables.sources import open_table as open_table
else:
    __getattr__, __dir__ = lazily(__name__, _HOMES)

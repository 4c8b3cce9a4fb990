"""Oracles: solvers and samplers that mechanisms call, with their certificates and conformance kits."""

if __name__ != "privopt.oracles":
    raise ImportError("import privopt.oracles: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

# The module of each public name: it is imported when the name is asked for.
_HOMES = {
    "Answer": "certificate",
    "Caching": "minimize.wrappers",
    "Certificate": "certificate",
    "CertificateError": "errors",
    "ConformanceError": "errors",
    "Counting": "minimize.wrappers",
    "DiscreteOracle": "minimize.interface",
    "Draw": "draw.interface",
    "GibbsOracle": "draw.interface",
    "HalfSpace": "indefinite.interface",
    "IndefiniteOracle": "indefinite.interface",
    "Law": "draw.interface",
    "Limits": "limits",
    "MissingSolverError": "errors",
    "OracleError": "errors",
    "PreparedOracle": "minimize.interface",
    "ProgramOracle": "programs.interface",
    "Progress": "limits",
    "Proposal": "minimize.interface",
    "QuadraticOracle": "convex.quadratic",
    "Query": "minimize.interface",
    "SolverFailedError": "errors",
    "Status": "certificate",
    "SubsetOracle": "programs.subsets.interface",
    "Task": "task",
    "TimeLimited": "minimize.wrappers",
    "Timing": "minimize.wrappers",
    "UnfinishedBuildError": "errors",
    "UnfinishedDrawError": "errors",
    "UnknownOracleError": "errors",
    "UnsupportedProblemError": "errors",
    "check_gibbs_oracle": "draw.conformance",
    "check_indefinite_oracle": "indefinite.conformance",
    "check_linear_minimizer": "convex.conformance",
    "check_oracle": "minimize.conformance",
    "check_program_oracle": "programs.conformance",
    "check_projector": "convex.conformance",
    "check_quadratic_oracle": "convex.conformance",
    "check_subset_oracle": "programs.subsets.conformance",
    "gibbs_oracle": "select",
    "indefinite_minimizer": "indefinite.select",
    "minimizer": "select",
    "program_oracle": "select",
    "progress_bar": "progress",
    "quadratic_minimizer": "convex.quadratic",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # the same names, for type checkers
    from privopt.oracles.certificate import Answer as Answer
    from privopt.oracles.certificate import Certificate as Certificate
    from privopt.oracles.certificate import Status as Status
    from privopt.oracles.convex.conformance import check_linear_minimizer as check_linear_minimizer
    from privopt.oracles.convex.conformance import check_projector as check_projector
    from privopt.oracles.convex.conformance import check_quadratic_oracle as check_quadratic_oracle
    from privopt.oracles.convex.quadratic import QuadraticOracle as QuadraticOracle
    from privopt.oracles.convex.quadratic import quadratic_minimizer as quadratic_minimizer
    from privopt.oracles.draw.conformance import check_gibbs_oracle as check_gibbs_oracle
    from privopt.oracles.draw.interface import Draw as Draw
    from privopt.oracles.draw.interface import GibbsOracle as GibbsOracle
    from privopt.oracles.draw.interface import Law as Law
    from privopt.oracles.errors import CertificateError as CertificateError
    from privopt.oracles.errors import ConformanceError as ConformanceError
    from privopt.oracles.errors import MissingSolverError as MissingSolverError
    from privopt.oracles.errors import OracleError as OracleError
    from privopt.oracles.errors import SolverFailedError as SolverFailedError
    from privopt.oracles.errors import UnfinishedBuildError as UnfinishedBuildError
    from privopt.oracles.errors import UnfinishedDrawError as UnfinishedDrawError
    from privopt.oracles.errors import UnknownOracleError as UnknownOracleError
    from privopt.oracles.errors import UnsupportedProblemError as UnsupportedProblemError
    from privopt.oracles.indefinite.conformance import check_indefinite_oracle as check_indefinite_oracle
    from privopt.oracles.indefinite.interface import HalfSpace as HalfSpace
    from privopt.oracles.indefinite.interface import IndefiniteOracle as IndefiniteOracle
    from privopt.oracles.indefinite.select import indefinite_minimizer as indefinite_minimizer
    from privopt.oracles.limits import Limits as Limits
    from privopt.oracles.limits import Progress as Progress
    from privopt.oracles.minimize.conformance import check_oracle as check_oracle
    from privopt.oracles.minimize.interface import DiscreteOracle as DiscreteOracle
    from privopt.oracles.minimize.interface import PreparedOracle as PreparedOracle
    from privopt.oracles.minimize.interface import Proposal as Proposal
    from privopt.oracles.minimize.interface import Query as Query
    from privopt.oracles.minimize.wrappers import Caching as Caching
    from privopt.oracles.minimize.wrappers import Counting as Counting
    from privopt.oracles.minimize.wrappers import TimeLimited as TimeLimited
    from privopt.oracles.minimize.wrappers import Timing as Timing
    from privopt.oracles.programs.conformance import check_program_oracle as check_program_oracle
    from privopt.oracles.programs.interface import ProgramOracle as ProgramOracle
    from privopt.oracles.programs.subsets.conformance import check_subset_oracle as check_subset_oracle
    from privopt.oracles.programs.subsets.interface import SubsetOracle as SubsetOracle
    from privopt.oracles.progress import progress_bar as progress_bar
    from privopt.oracles.select import gibbs_oracle as gibbs_oracle
    from privopt.oracles.select import minimizer as minimizer
    from privopt.oracles.select import program_oracle as program_oracle
    from privopt.oracles.task import Task as Task
else:
    __getattr__, __dir__ = lazily(__name__, _HOMES)

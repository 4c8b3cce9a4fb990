"""What we assume we can solve: interfaces, certificates, solvers, conformance kits."""

if __name__ != "privopt.oracles":
    raise ImportError("import privopt.oracles: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

if TYPE_CHECKING:  # at run time each is imported when it is asked for
    from privopt.oracles.certificate import Answer, Certificate, Status
    from privopt.oracles.convex.conformance import (
        check_linear_minimizer,
        check_projector,
        check_quadratic_oracle,
    )
    from privopt.oracles.convex.quadratic import QuadraticOracle, quadratic_minimizer
    from privopt.oracles.convex.tilted_conformance import check_tilted_oracle
    from privopt.oracles.convex.tilted_select import tilted_minimizer
    from privopt.oracles.draw.conformance import check_gibbs_oracle
    from privopt.oracles.draw.interface import Draw, GibbsOracle, Law
    from privopt.oracles.errors import (
        CertificateError,
        ConformanceError,
        MissingSolverError,
        OracleError,
        SolverFailedError,
        UnfinishedDrawError,
        UnknownOracleError,
        UnsupportedProblemError,
    )
    from privopt.oracles.indefinite.conformance import check_indefinite_oracle
    from privopt.oracles.indefinite.interface import HalfSpace, IndefiniteOracle
    from privopt.oracles.indefinite.select import indefinite_minimizer
    from privopt.oracles.limits import Limits, Progress
    from privopt.oracles.minimize.conformance import check_oracle
    from privopt.oracles.minimize.interface import DiscreteOracle, PreparedOracle, Proposal, Query
    from privopt.oracles.minimize.wrappers import Caching, Counting, TimeLimited, Timing
    from privopt.oracles.select import gibbs_oracle, minimizer
    from privopt.oracles.task import Task
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "Answer",
    "Caching",
    "Certificate",
    "CertificateError",
    "ConformanceError",
    "Counting",
    "DiscreteOracle",
    "Draw",
    "GibbsOracle",
    "HalfSpace",
    "IndefiniteOracle",
    "Law",
    "Limits",
    "MissingSolverError",
    "OracleError",
    "PreparedOracle",
    "Progress",
    "Proposal",
    "QuadraticOracle",
    "Query",
    "SolverFailedError",
    "Status",
    "Task",
    "TimeLimited",
    "Timing",
    "UnfinishedDrawError",
    "UnknownOracleError",
    "UnsupportedProblemError",
    "check_gibbs_oracle",
    "check_indefinite_oracle",
    "check_linear_minimizer",
    "check_oracle",
    "check_projector",
    "check_quadratic_oracle",
    "check_tilted_oracle",
    "gibbs_oracle",
    "indefinite_minimizer",
    "minimizer",
    "quadratic_minimizer",
    "tilted_minimizer",
]

"""What we assume we can solve: interfaces, certificates, backends, wrappers, the conformance kit."""

if __name__ != "privopt.oracles":
    raise ImportError("import privopt.oracles: under the bare name every class would exist twice")

from privopt.oracles.certificate import Answer, Certificate, Status
from privopt.oracles.conformance import check_oracle
from privopt.oracles.convex_conformance import (
    check_linear_minimizer,
    check_projector,
    check_quadratic_oracle,
)
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
from privopt.oracles.gibbs import Draw, GibbsOracle, Law
from privopt.oracles.gibbs_conformance import check_gibbs_oracle
from privopt.oracles.interface import DiscreteOracle, Limits, PreparedOracle, Progress, Proposal, Query, Task
from privopt.oracles.quadratic import QuadraticOracle, quadratic_minimizer
from privopt.oracles.select import gibbs_oracle, minimizer
from privopt.oracles.wrappers import Caching, Counting, TimeLimited, Timing

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
    "check_linear_minimizer",
    "check_oracle",
    "check_projector",
    "check_quadratic_oracle",
    "gibbs_oracle",
    "minimizer",
    "quadratic_minimizer",
]

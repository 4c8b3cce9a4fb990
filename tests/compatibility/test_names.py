"""Names that were public before the rooms were regrouped (commit 8b7f67a) still are."""

from __future__ import annotations

import importlib
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = {
    "problems": """Binned Categorical DiscreteProblem InfeasibleDomainError IntegerLattice InvalidInputError
        MonotoneConjunction MonotoneDisjunction Numeric Perturbation PrivOptError PrivacyLeakWarning Schema
        SeparatorSet ZeroOneHalfspace read_table""",
    "oracles": """Answer Caching Certificate CertificateError ConformanceError Counting DiscreteOracle Draw
        GibbsOracle Law Limits MissingSolverError OracleError PreparedOracle Progress Proposal QuadraticOracle
        Query SolverFailedError Status Task TimeLimited Timing UnfinishedDrawError UnknownOracleError
        UnsupportedProblemError check_gibbs_oracle check_linear_minimizer check_oracle check_projector
        check_quadratic_oracle gibbs_oracle minimizer quadratic_minimizer""",
    "mechanisms": """MECHANISMS ExponentialMechanism GaussianRSPM LaplaceRSPM LatticeMechanism NoiseSource
        OPDisc PermuteAndFlip PrivacySpend PrivateHalfspaceClassifier PrivateLinearRegression
        PrivateLogisticRegression PrivateSigmoidClassifier Release""",
}


@pytest.mark.parametrize("wing", PUBLIC)
def test_public_names_are_still_there(wing: str) -> None:
    module = importlib.import_module(f"privopt.{wing}")
    names = set(PUBLIC[wing].split())
    assert names <= set(module.__all__)
    assert sorted(module.__all__) == dir(module)  # what is listed is what can be imported on demand
    assert all(getattr(module, name) is not None for name in module.__all__)


@pytest.mark.parametrize("wing", PUBLIC)
def test_an_unknown_name_is_no_attribute(wing: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'privopt.{wing}' has no attribute 'nothing'"):
        _ = importlib.import_module(f"privopt.{wing}").nothing


def runnables() -> list[str]:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "experiments" / "docs").glob("*.md")]
    found = (re.findall(r"python -m privopt\.experiments\.([a-z]\w*)", page.read_text()) for page in pages)
    return sorted({name for names in found for name in names})


def test_pages_name_the_runnables_that_they_did() -> None:
    before = {"accuracy", "benchmark_gradient", "benchmark_solvers", "errata"}
    assert before | {"first_order_accuracy", "first_order_noise", "scaling"} <= set(runnables())


@pytest.mark.parametrize("name", runnables())
@pytest.mark.filterwarnings("ignore:.*found in sys.modules:RuntimeWarning")  # other tests import them too
def test_what_pages_run_starts(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as left:
        runpy.run_module(f"privopt.experiments.{name}", run_name="__main__")
    assert left.value.code == 0
    assert "usage" in capsys.readouterr().out.lower()

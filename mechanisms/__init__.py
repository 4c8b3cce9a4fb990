"""How privacy is obtained: plan (calibration, no data), then release (a reduction to oracle calls)."""

if __name__ != "privopt.mechanisms":
    raise ImportError("import privopt.mechanisms: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

if TYPE_CHECKING:  # at run time each is imported when it is asked for
    from privopt.mechanisms.discrete.exponential import ExponentialMechanism, PermuteAndFlip
    from privopt.mechanisms.discrete.mechanism import LatticeMechanism, Release
    from privopt.mechanisms.discrete.opdisc import OPDisc
    from privopt.mechanisms.discrete.registry import MECHANISMS
    from privopt.mechanisms.discrete.rspm import GaussianRSPM, LaplaceRSPM
    from privopt.mechanisms.estimators.evaluate import evaluate
    from privopt.mechanisms.estimators.linear import (
        PrivateLinearRegression,
        PrivateLogisticRegression,
        PrivateSigmoidClassifier,
    )
    from privopt.mechanisms.estimators.robust import PrivateRobustClassifier, PrivateRobustRegression
    from privopt.mechanisms.estimators.scorecard import PrivateHalfspaceClassifier
    from privopt.mechanisms.nonconvex.registry import NONCONVEX
    from privopt.mechanisms.privacy.noise import NoiseSource
    from privopt.mechanisms.privacy.spend import PrivacySpend
else:
    __getattr__, __dir__ = lazily(__name__)

__all__ = [
    "MECHANISMS",
    "NONCONVEX",
    "ExponentialMechanism",
    "GaussianRSPM",
    "LaplaceRSPM",
    "LatticeMechanism",
    "NoiseSource",
    "OPDisc",
    "PermuteAndFlip",
    "PrivacySpend",
    "PrivateHalfspaceClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateRobustClassifier",
    "PrivateRobustRegression",
    "PrivateSigmoidClassifier",
    "Release",
    "evaluate",
]

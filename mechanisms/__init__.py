"""How privacy is obtained: plan (calibration, no data), then release (a reduction to oracle calls)."""

if __name__ != "privopt.mechanisms":
    raise ImportError("import privopt.mechanisms: under the bare name every class would exist twice")

from privopt.mechanisms.classifier import PrivateHalfspaceClassifier
from privopt.mechanisms.estimators import (
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateSigmoidClassifier,
)
from privopt.mechanisms.exponential import ExponentialMechanism, PermuteAndFlip
from privopt.mechanisms.mechanism import LatticeMechanism, Release
from privopt.mechanisms.noise import NoiseSource
from privopt.mechanisms.opdisc import OPDisc
from privopt.mechanisms.registry import MECHANISMS
from privopt.mechanisms.rspm import GaussianRSPM, LaplaceRSPM
from privopt.mechanisms.spend import PrivacySpend

__all__ = [
    "MECHANISMS",
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
    "PrivateSigmoidClassifier",
    "Release",
]

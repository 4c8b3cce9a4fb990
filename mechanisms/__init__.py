"""Differentially private mechanisms: plan (calibration without data), then release (calls of oracles)."""

if __name__ != "privopt.mechanisms":
    raise ImportError("import privopt.mechanisms: under the bare name every class would exist twice")

from typing import TYPE_CHECKING

from privopt.problems.lazy import lazily

# The module of each public name: it is imported when the name is asked for.
_HOMES = {
    "ClippedNewton": "heavy_tails.clipped_newton",
    "DPAcceleratedMirrorDescent": "convex.mirror_descent",
    "DPConstrainedStationaryPoint": "nonconvex.constrained",
    "DPCubicNewton": "nonconvex.newton",
    "DPFrankWolfeL1": "convex.frank_wolfe",
    "DPFrankWolfeL2": "convex.frank_wolfe",
    "DPGradientDescent": "convex.gradient_descent",
    "DPLangevin": "nonconvex.langevin",
    "DPMirrorDescent": "convex.mirror_descent",
    "DPProximalGradient": "convex.gradient_descent",
    "DPSVRG": "convex.svrg",
    "DPSVRGPlusPlus": "convex.svrg",
    "DPSpider": "nonconvex.spider",
    "DPStationaryPoint": "nonconvex.stationary",
    "DPStochasticGradient": "convex.stochastic_gradient",
    "ExponentialMechanism": "discrete.exponential",
    "ExpectedAuc": "estimators.expected_auc",
    "ExpectedIntervals": "estimators.expected_intervals",
    "GaussianRSPM": "discrete.rspm",
    "LaplaceRSPM": "discrete.rspm",
    "LatticeMechanism": "discrete.mechanism",
    "LearnedSchema": "schemas.learning",
    "MEANS": "registry",
    "MECHANISMS": "registry",
    "MeasuredRobustDescent": "heavy_tails.measured_descent",
    "MeasuredRobustStochastic": "heavy_tails.measured_descent",
    "MeasuredTrimmedDescent": "heavy_tails.measured_descent",
    "NetMechanism": "nonconvex.net",
    "NoiseSource": "privacy.noise",
    "OPDisc": "discrete.opdisc",
    "ObjectivePerturbation": "convex.objective_perturbation",
    "OutputPerturbation": "convex.output_perturbation",
    "PermuteAndFlip": "discrete.exponential",
    "PerturbationWithHessian": "convex.perturbation_with_hessian",
    "PrivacySpend": "privacy.spend",
    "PrivateAdditiveTreeClassifier": "estimators.additive",
    "PrivateHalfspaceClassifier": "estimators.scorecard",
    "PrivateLinearRegression": "estimators.bounded_linear",
    "PrivateLogisticRegression": "estimators.bounded_linear",
    "PrivateRobustClassifier": "estimators.robust",
    "PrivateRobustRegression": "estimators.robust",
    "PrivateRuleListClassifier": "estimators.tree",
    "PrivateSearchCV": "estimators.search",
    "PrivateSigmoidClassifier": "estimators.bounded_linear",
    "PrivateSubsetSelector": "estimators.subset",
    "PrivateTreeClassifier": "estimators.tree",
    "RISK_MECHANISMS": "registry",
    "ROBUST_FITS": "registry",
    "ROBUST_MECHANISMS": "registry",
    "RealRelease": "risk.mechanism",
    "Release": "discrete.mechanism",
    "RiskMechanism": "risk.mechanism",
    "RobustGradientDescent": "heavy_tails.robust_descent",
    "RobustMean": "heavy_tails.robust_mean",
    "RobustStochasticGradient": "heavy_tails.robust_stochastic",
    "SCORECARD_MECHANISMS": "registry",
    "SchemaPlan": "schemas.learning",
    "SchemaTransformer": "estimators.transformer",
    "ScreenedStatistics": "convex.screened_statistics",
    "SeededScorecard": "scorecards.seeded",
    "SufficientStatistics": "convex.sufficient_statistics",
    "TrimmedGradientDescent": "heavy_tails.trimmed_descent",
    "TrimmedMean": "heavy_tails.trimmed_mean",
    "budget": "privacy.ambient",
    "choose_model": "estimators.model_choice",
    "compare": "estimators.compare",
    "evaluate": "estimators.evaluate",
    "fit_with_learned_schema": "estimators.learned_fit",
    "learn_schema": "estimators.learn_schema",
}
__all__ = sorted(_HOMES)

if TYPE_CHECKING:  # the same names, for type checkers
    from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1 as DPFrankWolfeL1
    from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL2 as DPFrankWolfeL2
    from privopt.mechanisms.convex.gradient_descent import DPGradientDescent as DPGradientDescent
    from privopt.mechanisms.convex.gradient_descent import DPProximalGradient as DPProximalGradient
    from privopt.mechanisms.convex.mirror_descent import (
        DPAcceleratedMirrorDescent as DPAcceleratedMirrorDescent,
    )
    from privopt.mechanisms.convex.mirror_descent import DPMirrorDescent as DPMirrorDescent
    from privopt.mechanisms.convex.objective_perturbation import (
        ObjectivePerturbation as ObjectivePerturbation,
    )
    from privopt.mechanisms.convex.output_perturbation import OutputPerturbation as OutputPerturbation
    from privopt.mechanisms.convex.perturbation_with_hessian import (
        PerturbationWithHessian as PerturbationWithHessian,
    )
    from privopt.mechanisms.convex.screened_statistics import ScreenedStatistics as ScreenedStatistics
    from privopt.mechanisms.convex.stochastic_gradient import DPStochasticGradient as DPStochasticGradient
    from privopt.mechanisms.convex.sufficient_statistics import SufficientStatistics as SufficientStatistics
    from privopt.mechanisms.convex.svrg import DPSVRG as DPSVRG
    from privopt.mechanisms.convex.svrg import DPSVRGPlusPlus as DPSVRGPlusPlus
    from privopt.mechanisms.discrete.exponential import ExponentialMechanism as ExponentialMechanism
    from privopt.mechanisms.discrete.exponential import PermuteAndFlip as PermuteAndFlip
    from privopt.mechanisms.discrete.mechanism import LatticeMechanism as LatticeMechanism
    from privopt.mechanisms.discrete.mechanism import Release as Release
    from privopt.mechanisms.discrete.opdisc import OPDisc as OPDisc
    from privopt.mechanisms.discrete.rspm import GaussianRSPM as GaussianRSPM
    from privopt.mechanisms.discrete.rspm import LaplaceRSPM as LaplaceRSPM
    from privopt.mechanisms.estimators.additive import (
        PrivateAdditiveTreeClassifier as PrivateAdditiveTreeClassifier,
    )
    from privopt.mechanisms.estimators.bounded_linear import (
        PrivateLinearRegression as PrivateLinearRegression,
    )
    from privopt.mechanisms.estimators.bounded_linear import (
        PrivateLogisticRegression as PrivateLogisticRegression,
    )
    from privopt.mechanisms.estimators.bounded_linear import (
        PrivateSigmoidClassifier as PrivateSigmoidClassifier,
    )
    from privopt.mechanisms.estimators.compare import compare as compare
    from privopt.mechanisms.estimators.evaluate import evaluate as evaluate
    from privopt.mechanisms.estimators.expected_auc import ExpectedAuc as ExpectedAuc
    from privopt.mechanisms.estimators.expected_intervals import ExpectedIntervals as ExpectedIntervals
    from privopt.mechanisms.estimators.learn_schema import learn_schema as learn_schema
    from privopt.mechanisms.estimators.learned_fit import fit_with_learned_schema as fit_with_learned_schema
    from privopt.mechanisms.estimators.model_choice import choose_model as choose_model
    from privopt.mechanisms.estimators.robust import PrivateRobustClassifier as PrivateRobustClassifier
    from privopt.mechanisms.estimators.robust import PrivateRobustRegression as PrivateRobustRegression
    from privopt.mechanisms.estimators.scorecard import (
        PrivateHalfspaceClassifier as PrivateHalfspaceClassifier,
    )
    from privopt.mechanisms.estimators.search import PrivateSearchCV as PrivateSearchCV
    from privopt.mechanisms.estimators.subset import PrivateSubsetSelector as PrivateSubsetSelector
    from privopt.mechanisms.estimators.transformer import SchemaTransformer as SchemaTransformer
    from privopt.mechanisms.estimators.tree import PrivateRuleListClassifier as PrivateRuleListClassifier
    from privopt.mechanisms.estimators.tree import PrivateTreeClassifier as PrivateTreeClassifier
    from privopt.mechanisms.heavy_tails.clipped_newton import ClippedNewton as ClippedNewton
    from privopt.mechanisms.heavy_tails.measured_descent import MeasuredRobustDescent as MeasuredRobustDescent
    from privopt.mechanisms.heavy_tails.measured_descent import (
        MeasuredRobustStochastic as MeasuredRobustStochastic,
    )
    from privopt.mechanisms.heavy_tails.measured_descent import (
        MeasuredTrimmedDescent as MeasuredTrimmedDescent,
    )
    from privopt.mechanisms.heavy_tails.robust_descent import RobustGradientDescent as RobustGradientDescent
    from privopt.mechanisms.heavy_tails.robust_mean import RobustMean as RobustMean
    from privopt.mechanisms.heavy_tails.robust_stochastic import (
        RobustStochasticGradient as RobustStochasticGradient,
    )
    from privopt.mechanisms.heavy_tails.trimmed_descent import (
        TrimmedGradientDescent as TrimmedGradientDescent,
    )
    from privopt.mechanisms.heavy_tails.trimmed_mean import TrimmedMean as TrimmedMean
    from privopt.mechanisms.nonconvex.constrained import (
        DPConstrainedStationaryPoint as DPConstrainedStationaryPoint,
    )
    from privopt.mechanisms.nonconvex.langevin import DPLangevin as DPLangevin
    from privopt.mechanisms.nonconvex.net import NetMechanism as NetMechanism
    from privopt.mechanisms.nonconvex.newton import DPCubicNewton as DPCubicNewton
    from privopt.mechanisms.nonconvex.spider import DPSpider as DPSpider
    from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint as DPStationaryPoint
    from privopt.mechanisms.privacy.ambient import budget as budget
    from privopt.mechanisms.privacy.noise import NoiseSource as NoiseSource
    from privopt.mechanisms.privacy.spend import PrivacySpend as PrivacySpend
    from privopt.mechanisms.registry import MEANS as MEANS
    from privopt.mechanisms.registry import MECHANISMS as MECHANISMS
    from privopt.mechanisms.registry import RISK_MECHANISMS as RISK_MECHANISMS
    from privopt.mechanisms.registry import ROBUST_FITS as ROBUST_FITS
    from privopt.mechanisms.registry import ROBUST_MECHANISMS as ROBUST_MECHANISMS
    from privopt.mechanisms.registry import SCORECARD_MECHANISMS as SCORECARD_MECHANISMS
    from privopt.mechanisms.risk.mechanism import RealRelease as RealRelease
    from privopt.mechanisms.risk.mechanism import RiskMechanism as RiskMechanism
    from privopt.mechanisms.schemas.learning import LearnedSchema as LearnedSchema
    from privopt.mechanisms.schemas.learning import SchemaPlan as SchemaPlan
    from privopt.mechanisms.scorecards.seeded import SeededScorecard as SeededScorecard
else:
    __getattr__, __dir__ = lazily(__name__, _HOMES)

"""Registry of all mechanisms by name: location, purpose and requirements.

The table is read lazily: a mechanism is imported when it is looked up. Mechanisms of other packages are found
by their entry points in the group ``privopt.mechanisms``: the name of an entry point is that of the
mechanism, its object is the class, and the ``family`` of the class says where it belongs.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from privopt.mechanisms.errors import UnknownMechanismError
from privopt.problems.arguments import told
from privopt.problems.errors import did_you_mean
from privopt.problems.plugins import loaded, offered, provider

GROUP = "privopt.mechanisms"


class Family(StrEnum):
    """Families of mechanisms; a name is unique within a family."""

    LATTICE = "points of a lattice"
    CARD = "scorecards"
    RISK = "linear models within public bounds"
    UNBOUNDED_RISK = "linear models of records with known moments or mean ranges"
    UNBOUNDED_FIT = "linear models of unbounded records"
    MEAN = "means of unbounded records"


@dataclass(frozen=True)
class Entry:
    """One line of the table.

    Attributes:
        family, name: the key.
        home: its module within ``privopt.mechanisms``, and its class, as in "discrete.opdisc:OPDisc".
        purpose: its use case.
        needs: its requirements on the problem.
    """

    family: Family
    name: str
    home: str
    purpose: str
    needs: str

    def load(self) -> type[Any]:
        """Import the class."""
        module, _, name = self.home.partition(":")
        found: type[Any] = getattr(importlib.import_module(f"privopt.mechanisms.{module}"), name)
        return found


def _entries(family: Family, *lines: tuple[str, str, str, str]) -> tuple[Entry, ...]:
    return tuple(Entry(family, *line) for line in lines)


_SQUARED_OR_LOGISTIC = "the squared or the logistic loss"
_CONVEX = "a convex loss, no l1 penalty"
_SMOOTH = "a loss whose Hessian is Lipschitz, no l1 penalty"

ENTRIES: tuple[Entry, ...] = (
    *_entries(
        Family.LATTICE,
        (
            "exponential",
            "discrete.exponential:ExponentialMechanism",
            "pure privacy: an exact draw from exp(-beta loss)",
            "an oracle that draws",
        ),
        (
            "permute-and-flip",
            "discrete.exponential:PermuteAndFlip",
            "pure privacy; never worse in expectation than the exponential mechanism",
            "an oracle that draws",
        ),
        (
            "opdisc",
            "discrete.opdisc:OPDisc",
            "objective perturbation through a certified minimiser",
            "a minimiser of normalized linear terms",
        ),
        (
            "rspm",
            "discrete.rspm:GaussianRSPM",
            "weights on separators through a certified minimiser",
            "a minimiser, a separator set",
        ),
        (
            "rspm-laplace",
            "discrete.rspm:LaplaceRSPM",
            "weights on separators, with pure privacy",
            "a minimiser, a separator set",
        ),
    ),
    *_entries(
        Family.CARD,
        (
            "seeded",
            "scorecards.seeded:SeededScorecard",
            "scorecards for any number of features: a rounded private linear model",
            "a schema",
        ),
    ),
    *_entries(
        Family.RISK,
        (
            "dp-gd",
            "convex.gradient_descent:DPGradientDescent",
            "gradient descent; few steps act as regularisation",
            "no set, no l1 penalty",
        ),
        (
            "dp-pgd",
            "convex.gradient_descent:DPProximalGradient",
            "proximal gradient steps: sets and l1 penalties",
            "a projection onto the set",
        ),
        (
            "dp-fw-l2",
            "convex.frank_wolfe:DPFrankWolfeL2",
            "Frank-Wolfe with noisy gradients: sets without a projection",
            "a bounded set with a linear minimiser, no l1 penalty",
        ),
        (
            "dp-fw-l1",
            "convex.frank_wolfe:DPFrankWolfeL1",
            "many features: Frank-Wolfe whose error grows with the logarithm of their number",
            "a set with finitely many vertices, no l1 penalty",
        ),
        (
            "dp-pmd",
            "convex.mirror_descent:DPMirrorDescent",
            "mirror descent in the geometry of the set",
            "a bounded set of this package",
        ),
        (
            "dp-accmd",
            "convex.mirror_descent:DPAcceleratedMirrorDescent",
            "accelerated mirror descent over norm balls",
            "a bounded set of this package, a convex loss, no l1 penalty",
        ),
        (
            "dp-svrg",
            "convex.svrg:DPSVRG",
            "variance-reduced batches under strong convexity; dp-sgd has less noise",
            "a convex loss, records in memory",
        ),
        (
            "dp-svrg++",
            "convex.svrg:DPSVRGPlusPlus",
            "variance-reduced batches, epochs that double; dp-sgd has less noise",
            "a convex loss, records in memory",
        ),
        (
            "dp-sgd",
            "convex.stochastic_gradient:DPStochasticGradient",
            "stochastic gradient steps on Poisson batches, for many records",
            "records in memory",
        ),
        (
            "output-perturbation",
            "convex.output_perturbation:OutputPerturbation",
            "a certified minimum, then noise",
            _CONVEX,
        ),
        (
            "objective-perturbation",
            "convex.objective_perturbation:ObjectivePerturbation",
            "a certified minimum of a randomly tilted objective; few features",
            _CONVEX,
        ),
        (
            "objective-perturbation-hessian",
            "convex.perturbation_with_hessian:PerturbationWithHessian",
            "objective perturbation and a noisy Hessian, for confidence intervals",
            "the logistic loss without class weights, no set, no l1 penalty",
        ),
        (
            "sufficient-statistics",
            "convex.sufficient_statistics:SufficientStatistics",
            "least squares from one release of noisy moments, for small budgets",
            f"{_SQUARED_OR_LOGISTIC}, no set, no penalty, at most 1,000 features",
        ),
        (
            "screened-statistics",
            "convex.screened_statistics:ScreenedStatistics",
            "wide and sparse tables: private feature screening, then noisy moments of the selected features",
            f"{_SQUARED_OR_LOGISTIC}, no set, no penalty",
        ),
        (
            "dp-gld",
            "nonconvex.langevin:DPLangevin",
            "Langevin dynamics for non-convex risks",
            "no set, no l1 penalty",
        ),
        (
            "net",
            "nonconvex.net:NetMechanism",
            "the exponential mechanism on a net, for few dimensions; pure privacy",
            "an l2 ball, no l1 penalty, records in memory",
        ),
        (
            "dp-sosp",
            "nonconvex.stationary:DPStationaryPoint",
            "gradient descent to a certified approximate local minimum",
            f"{_SMOOTH}, no set",
        ),
        (
            "dp-newton",
            "nonconvex.newton:DPCubicNewton",
            "few cubic Newton steps to a certified approximate local minimum",
            f"{_SMOOTH}, no set",
        ),
        (
            "dp-spider",
            "nonconvex.spider:DPSpider",
            "stationary points with small gradients by variance reduction, for well-curved minima",
            "no set, no l1 penalty",
        ),
        (
            "dp-gd-so",
            "nonconvex.constrained:DPConstrainedStationaryPoint",
            "approximate local minima over a convex set",
            f"{_SMOOTH}, a bounded set",
        ),
    ),
    *_entries(
        Family.UNBOUNDED_RISK,
        (
            "robust-gd",
            "heavy_tails.robust_descent:RobustGradientDescent",
            "gradient descent with robust means of gradients",
            "a second moment of gradients",
        ),
        (
            "robust-sgd",
            "heavy_tails.robust_stochastic:RobustStochasticGradient",
            "robust means of gradients on Poisson batches",
            "a second moment of gradients",
        ),
        (
            "trimmed-gd",
            "heavy_tails.trimmed_descent:TrimmedGradientDescent",
            "gradient descent with trimmed means of gradients",
            "a range for means of gradients",
        ),
    ),
    *_entries(
        Family.UNBOUNDED_FIT,
        (
            "clipped-newton",
            "heavy_tails.clipped_newton:ClippedNewton",
            "clipped Newton steps in private units; the default",
            f"{_SQUARED_OR_LOGISTIC}, at most 1,000 features",
        ),
        (
            "robust-gd",
            "heavy_tails.measured_descent:MeasuredRobustDescent",
            "robust means of gradients in private units",
            _SQUARED_OR_LOGISTIC,
        ),
        (
            "robust-sgd",
            "heavy_tails.measured_descent:MeasuredRobustStochastic",
            "robust means on Poisson batches, in private units",
            _SQUARED_OR_LOGISTIC,
        ),
        (
            "trimmed-gd",
            "heavy_tails.measured_descent:MeasuredTrimmedDescent",
            "trimmed means of gradients in private units",
            _SQUARED_OR_LOGISTIC,
        ),
    ),
    *_entries(
        Family.MEAN,
        (
            "robust-mean",
            "heavy_tails.robust_mean:RobustMean",
            "a mean by soft truncation",
            "a second moment",
        ),
        (
            "trimmed-mean",
            "heavy_tails.trimmed_mean:TrimmedMean",
            "a trimmed mean",
            "a range for the mean",
        ),
    ),
)


class Mechanisms(Mapping[str, type[Any]]):
    """Mechanisms of some families by name: first built-in ones, then mechanisms of other packages."""

    def __init__(self, *families: Family) -> None:
        self.families = families
        self._ours = {entry.name: entry for entry in ENTRIES if entry.family in families}

    def __getitem__(self, name: str) -> type[Any]:
        return self._ours[name].load() if name in self._ours else self._offered()[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*self._ours, *self._offered()))

    def __len__(self) -> int:
        return len(self._ours) + len(self._offered())

    def __contains__(self, name: object) -> bool:
        return name in self._ours or name in self._offered()

    def __repr__(self) -> str:
        return f"<mechanisms for {self.families[-1]}: {', '.join(self)}>"

    def named(self, mechanism: str | type[Any]) -> type[Any]:
        """Return a mechanism of these families by name; a custom class is returned as it is.

        Raises:
            UnknownMechanismError: listing the known names.
        """
        if isinstance(mechanism, type):
            return _checked(mechanism, self.families, mechanism.__module__)
        if not isinstance(mechanism, str) or mechanism not in self:
            raise UnknownMechanismError(
                f"unknown mechanism {told(mechanism)}{did_you_mean(mechanism, self)} for "
                f"{self.families[-1]}; there are auto, {', '.join(self)}"
            )
        return self[mechanism]

    def _offered(self) -> dict[str, type[Any]]:
        every = {entry.name for entry in ENTRIES}
        kinds = {
            name: _checked(loaded(entry, "mechanism", UnknownMechanismError), tuple(Family), provider(entry))
            for name, entry in offered(GROUP, every).items()
        }
        return {name: kind for name, kind in kinds.items() if kind.family in self.families}


def _checked(kind: Any, families: tuple[Family, ...], source: str) -> type[Any]:
    """Return the class, if it is a mechanism of these families.

    Raises:
        UnknownMechanismError: it is not.
    """
    if isinstance(kind, type) and getattr(kind, "family", None) in families:
        return kind
    wanted = " or ".join(families)
    name = kind.__name__ if isinstance(kind, type) else told(kind)
    raise UnknownMechanismError(f"{name} (of {source}) is not a mechanism for {wanted}")


MECHANISMS = Mechanisms(Family.LATTICE)
SCORECARD_MECHANISMS = Mechanisms(Family.LATTICE, Family.CARD)
RISK_MECHANISMS = Mechanisms(Family.RISK)
ROBUST_MECHANISMS = Mechanisms(Family.UNBOUNDED_RISK)
ROBUST_FITS = Mechanisms(Family.UNBOUNDED_FIT)
MEANS = Mechanisms(Family.MEAN)

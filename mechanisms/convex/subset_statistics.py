"""Best subsets of columns from one release of noisy second moments."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.convex.likely_weights import Block, likely_blocks, likely_covariances
from privopt.mechanisms.convex.sufficient_statistics import Moments, SufficientStatistics
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.risk.iteration import Run
from privopt.mechanisms.risk.mechanism import RealRelease
from privopt.mechanisms.risk.support_path import SupportPath
from privopt.oracles.errors import UnfinishedBuildError
from privopt.oracles.limits import Limits, Watch
from privopt.oracles.programs.subsets.interface import SubsetOracle
from privopt.oracles.select import subset_oracle
from privopt.problems.convex.regularizers import Vector
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.programs.subset import SubsetProgram

# Lower limit on the ridge of a column, in units of its variance: the program must be positive definite.
_LEAST_RIDGE = 1e-3


@dataclass(frozen=True)
class SubsetStatistics(SufficientStatistics):
    """Sufficient statistics whose model is on the best subset of at most k columns.

    Post-processing of the release of noisy moments, at no further privacy cost: covariances are estimated by
    empirical Bayes as for the full model, and a ``SubsetProgram`` finds, for each size up to k, the columns
    that explain the labels best. The model on the largest subset is estimated from the moments of its columns
    alone. Any solver may be used: the program's data are released, and no proof is needed.

    Privacy: that of ``SufficientStatistics``. Neighbours: replace-one, n public.

    Attributes:
        most: k. Public.
        spans: the features [start, stop) of each column, which are chosen together. Public.
        oracle: the solver.
    """

    most: int = 1
    spans: tuple[tuple[int, int], ...] = ()
    oracle: SubsetOracle = field(default_factory=lambda: subset_oracle("auto"))
    _kept: tuple[int, ...] | None = None

    @classmethod
    def of(cls, plan: SufficientStatistics, most: int, spans: tuple[tuple[int, int], ...]) -> Self:
        """Return the plan of the same release with the best subset of at most ``most`` columns."""
        same = {f.name: getattr(plan, f.name) for f in fields(SufficientStatistics)}
        return cls(**same, most=most, spans=spans)

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        found, sigma = self._noisy_moments(risk, run)
        return self._best(found, sigma, run.watch)[0], None

    def _released(self, risk: EmpiricalRisk, run: Run, spend: PrivacySpend) -> RealRelease:
        found, sigma = self._noisy_moments(risk, run)
        point, path = self._best(found, sigma, run.watch)
        return RealRelease(point, spend, self.noise, moments=self.stated_moments(found, sigma), supports=path)

    def _best(self, found: Moments, sigma: float, watch: Watch) -> tuple[Vector, SupportPath]:
        """Return the model on the best subset of the largest size, and the subsets of all sizes."""
        path = self._path(self._program(found, sigma), watch)
        return self._only(path.masks[-1])._models(found, sigma), path

    def _path(self, program: SubsetProgram, watch: Watch) -> SupportPath:
        """Solve for 1 to k columns.

        The time limit of the release may stop the solves, but a solver does not learn how much time is left,
        because that depends on the records beyond the moments.
        """
        masks, finished = [], []
        for size in range(1, self.most + 1):
            limits = Limits(cancelled=lambda: watch.stop() is not None)
            answer = self.oracle.solve(replace(program, most=size), limits)
            if (stopped := watch.stop()) is not None:
                raise UnfinishedBuildError(f"stopped by {stopped.name}, before the best subsets were found")
            choice = np.zeros(len(program.columns), np.int64) if answer.point is None else answer.point
            masks.append(program.features(choice))
            finished.append(answer.finished)
        return SupportPath(np.array(masks), tuple(finished))

    def _program(self, found: Moments, sigma: float) -> SubsetProgram:
        """Return the program of the best k columns, with a ridge that is matched to the noise.

        If w_j ~ N(0, t) and the covariance with labels is A_jj w_j + N(0, v), the posterior mean is ridge
        regression with v / (A_jj t); a priori k columns share the variance of the labels evenly.
        """
        seen = self._centred(found.features, found.products, sigma)
        gram, ridge = seen.features, 0.0
        if sigma > 0:
            variance = self._label_variance(seen.label)
            blocks = self._blocks(self._variances(seen), seen.means, sigma)
            gram, left = likely_covariances(seen.features, blocks, sigma)
            typical = float(np.mean(np.diag(gram)))
            prior = variance / (self.most * typical)
            noise = seen.noise + variance / self.facts.n_records * typical  # of the release, of the records
            hidden = left.sum(axis=1) * prior * self.most / len(gram)
            ridge = (noise + hidden) / (np.diag(gram) * prior)
        least = _LEAST_RIDGE * np.maximum(np.diag(gram), 1e-9 * float(np.max(np.diag(gram))) + 1e-300)
        ridged = gram + np.diag(np.maximum(ridge, least))
        return SubsetProgram.of(ridged, seen.products, self.most, spans=self.spans)

    def _only(self, kept: NDArray[np.bool_]) -> Self:
        """Return the plan whose model is on some features."""
        if self.columns is None:
            return replace(self, _kept=tuple(np.flatnonzero(kept).tolist()))
        parts = tuple(part for part in self.columns.parts if kept[part[0]])
        return replace(self, columns=replace(self.columns, parts=parts))

    @property
    def _used(self) -> NDArray[np.int64]:
        return super()._used if self._kept is None else np.array(self._kept, dtype=np.int64)

    def _blocks(self, variances: Vector, means: Vector, sigma: float) -> list[Block]:
        if self._kept is None:
            return super()._blocks(variances, means, sigma)
        # All columns share the bound on rows, whatever is chosen.
        return likely_blocks(variances, sigma, self._mean_square(len(super()._used)))

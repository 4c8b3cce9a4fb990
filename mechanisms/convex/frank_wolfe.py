"""Private Frank-Wolfe: DP-FW-L2 with noisy gradients, DP-FW-L1 with a noisily selected vertex.

Source: Wang and Xu (AAAI 2019) for both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.convex import sparse_frank_wolfe
from privopt.mechanisms.convex.sparse_frank_wolfe import SparsePath, VertexDraws
from privopt.mechanisms.privacy.accounting import bounded_range_to_zcdp, zcdp_rho
from privopt.mechanisms.privacy.gradient_noise import shared_by
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count
from privopt.mechanisms.privacy.selection_noise import SelectionNoise, selection_steps
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.privacy.usefulness import NoiseToSignal
from privopt.mechanisms.risk.iteration import (
    Method,
    Output,
    Run,
    State,
    StepClock,
    choose_output,
    noisy_iteration,
)
from privopt.mechanisms.risk.mechanism import FullBatchMechanism, IterativeMechanism, RiskTarget
from privopt.mechanisms.risk.step_counts import (
    dual_noise,
    loss_range,
    prediction_scale,
    ridged_smoothness,
    whole_steps,
)
from privopt.oracles.convex.registry import linear_minimizer
from privopt.problems.convex.regularizers import ElasticNet, Vector
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts, RowNorm
from privopt.problems.convex.sets.interface import ConvexSet
from privopt.problems.convex.sets.norm_balls import L1Ball

# Radius of the default l1 ball, in units of the scale of predictions over the bound on features: room for
# about five binary features of weight 1.
_FEATURES = 5.0


class _FrankWolfe(IterativeMechanism):
    """Frank-Wolfe steps: x+ = x + gamma (s - x), s a vertex."""

    def _rate(self) -> Callable[[int], float]:
        return frank_wolfe_rate(self.facts, self.convex_set, self.regularizer, self.output, self.steps)

    @property
    def step_sizes(self) -> tuple[float, float]:
        return self._rate()(0), self._rate()(self.steps - 1)


class DPFrankWolfeL2(_FrankWolfe, FullBatchMechanism):
    """DP-FW-L2: v = argmin over v in C of <v, grad F(x) + noise>; x+ = x + gamma (v - x).

    gamma is constant for a random iterate (Theorem 4 of the source) and 2/(k + 2) for the last iterate of a
    convex loss, the textbook schedule. A ridge penalty is smooth and joins the gradient.

    Source: Wang and Xu (2019), Algorithm 2. Privacy: see ``FullBatchMechanism``.
    """

    name = "dp-fw-l2"
    takes_weights = True
    wants_bounded_set = True
    takes_l1 = False
    instead = "constrain with an l1 ball, or use dp-pgd or dp-pmd"

    @classmethod
    def _default_output(cls, facts: RiskFacts, regularizer: ElasticNet) -> Output:
        return Output.LAST if facts.loss.convex else Output.RANDOM

    @classmethod
    def _default_steps(cls, target: RiskTarget, output: Output) -> int:
        noise = 2 * dual_noise(target.convex_set) / target.precision
        return frank_wolfe_steps(target.facts, target.convex_set, target.regularizer, output, noise)

    def _method(self, start: Vector) -> Method:
        minimize, rate = linear_minimizer(self.convex_set), self._rate()
        l2 = self.regularizer.l2

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            return x + rate(k) * (minimize(g + l2 * x).point - x)

        return Method(start, step)


@dataclass(frozen=True)
class DPFrankWolfeL1(_FrankWolfe):
    """DP-FW-L1: a vertex s of C is selected by noisy max of -<s, grad F(x)>; x+ = (1 - gamma) x + gamma s.

    No vector is noised, and the error grows with the logarithm of the number of vertices. A step costs one
    gradient and one Gumbel variable per vertex; over an l1 ball or a simplex, for sparse rows and without a
    ridge penalty, a step draws from the same law in time that does not grow with the number of features
    (``sparse_frank_wolfe``). The step size is as in ``DPFrankWolfeL2``.

    The last iterate is the default also for non-convex losses, although Theorem 6 is about a random iterate
    at a constant step: the random iterate had twice the excess risk in the geometric mean of 27 synthetic
    tasks (three losses, three shapes, three epsilons), and on no task was it better by 5%.

    Privacy: rho-zCDP with rho = T eps0^2 / 8 (bounded range), stated as (epsilon, delta); neighbours by
    replacing one record, n public.

    Source: Wang and Xu (2019), Algorithm 4 and Theorem 6; Talwar, Thakurta and Zhang (2015) for convex
    losses. Their eps0 = epsilon / sqrt(8 T ln(1/delta)) needs 8 sqrt(rho ln(1/delta)) / epsilon times the
    noise used here, whatever T: 4.1 to 5.0 times at delta = 1/n^2 (4.6 at (2, 1e-3), up to 7 where delta is
    large and epsilon small). The exact root of the theorem of advanced composition, which has no closed form,
    needs 2.6 times this noise at (2, 1e-3) and T = 200.
    """

    name: ClassVar[str] = "dp-fw-l1"
    natural_norm: ClassVar[RowNorm] = "linf"
    wants_bounded_set: ClassVar[bool] = True
    takes_l1: ClassVar[bool] = False
    takes_weights: ClassVar[bool] = True
    instead: ClassVar[str] = "use an l1 ball, a simplex or a hull, or dp-fw-l2"
    noised: ClassVar[str] = "the score of each vertex, every step"

    selection: SelectionNoise

    @classmethod
    def _calibrated(
        cls, target: RiskTarget, *, steps: int | None = None, output: Output | None = None
    ) -> Self:
        """Calibrate; ``steps`` is by default the number in the utility theorem.

        Several releases share rho evenly.
        """
        output = output or Output.LAST
        facts, space, regularizer = target.facts, target.convex_set, target.regularizer
        if steps is None:
            one = cls._selection(target, target.releases)
            noise = max(one.scale * math.log(space.vertex_count or 1), 1e-300)
            steps = frank_wolfe_steps(facts, space, regularizer, output, noise)
        together = check_count(steps, "steps") * target.releases
        selection = cls._selection(target, together)
        rho = min(
            together * bounded_range_to_zcdp(selection.step_epsilon), zcdp_rho(target.epsilon, target.delta)
        )
        note = shared_by(target.releases, f"{rho / target.releases:.4g}-zCDP each")
        spend = PrivacySpend(target.epsilon, target.delta, "zcdp", cls.name, level=rho, note=note)
        return cls(facts, space, regularizer, spend, steps, output, selection)

    @staticmethod
    def _selection(target: RiskTarget, steps: int) -> SelectionNoise:
        """Calibrate the noise of ``steps`` selections to the whole budget."""
        return selection_steps(
            target.epsilon,
            target.delta,
            steps=steps,
            facts=target.facts,
            convex_set=target.convex_set,
            l2=target.regularizer.l2,
        )

    @classmethod
    def refusals(cls, facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet) -> list[str]:
        """Also refuse sets without a finite list of vertices."""
        kind = type(convex_set).__name__
        reason = [f"needs a set with finitely many vertices, got {kind}"] * (convex_set.vertex_count is None)
        return [*super().refusals(facts, convex_set, regularizer), *reason]

    @classmethod
    def default_set(cls, facts: RiskFacts) -> ConvexSet:
        """Return an l1 ball; for linf rows its radius fits five typical binary features of weight 1."""
        if facts.norm == "linf":
            return L1Ball(facts.dimension, _FEATURES * prediction_scale(facts) / facts.row_norm)
        return L1Ball(facts.dimension, super().default_set(facts).radius)

    @property
    def noise(self) -> dict[str, float]:
        return {"gumbel_scale": self.selection.scale, "sensitivity": self.selection.sensitivity}

    @property
    def noise_to_signal(self) -> NoiseToSignal:
        """The largest Gumbel variable of a step, compared with the largest score of a vertex."""
        size = self.facts.gradient_bound_linf * self.convex_set.l1_radius
        noise = self.selection.scale * math.log(max(2, self.convex_set.vertex_count or 1))
        return NoiseToSignal(noise, size, "score of a vertex")

    def _compile(self, risk: EmpiricalRisk) -> None:
        super()._compile(risk)
        if sparse_frank_wolfe.applies(risk, self.convex_set, self.regularizer):
            from privopt.problems.convex.sparse_columns import SparseColumns  # imports numba, which is slow

            SparseColumns(risk.X.indptr, risk.X.indices, np.zeros(0)).compile()

    def _run(self, risk: EmpiricalRisk, run: Run) -> tuple[Vector, None]:
        sparse = sparse_frank_wolfe.applies(risk, self.convex_set, self.regularizer)
        if sparse and run.source is not None:
            return self._run_on_columns(risk, run, run.source), None
        return self._run_on_rows(risk, run), None

    def _run_on_columns(self, risk: EmpiricalRisk, run: Run, source: NoiseSource) -> Vector:
        """Run; after the setup, time does not grow with the number of features: see ``VertexDraws``."""
        rate, steps = self._rate(), self._drawn_steps(source)
        space: Any = self.convex_set
        draws = VertexDraws.of(risk, space, self.selection.scale)
        path, clock = SparsePath(risk, run.start, space.size, draws.columns), StepClock(run.watch, steps)
        for k in range(steps):
            clock.tick()
            path.step(draws.draw(path.slopes(), source), rate(k))
        return path.output(self.output)

    def _run_on_rows(self, risk: EmpiricalRisk, run: Run) -> Vector:
        rate, l2, source = self._rate(), self.regularizer.l2, run.source
        steps = self._drawn_steps(source)

        def step(k: int, _state: State, x: Vector, g: Vector) -> State:
            scores = self.convex_set.vertex_scores(-(g + l2 * x))
            best = int(np.argmax(scores)) if source is None else self.selection.choose(scores, source)
            return (1 - rate(k)) * x + rate(k) * self.convex_set.vertex(best)

        clock = StepClock(run.watch, steps)
        iterates = noisy_iteration(Method(run.start, step), risk.gradient, lambda g: g, steps, clock)
        return choose_output(iterates, self.output, run.start)


def frank_wolfe_steps(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, noise: float
) -> int:
    """Return the T with the least bound on the gap: noise * sqrt(T) plus 2 C / T or sqrt(2 B C / T).

    The bound with 2 C / T is for the last iterate, the other one for a random iterate. C is the curvature
    over steps as long as the radius. The constant of the proofs, for steps across the whole set (Jaggi 2013),
    is 4 times that, and would choose more steps, hence more noise, without any gain.
    """
    curvature = ridged_smoothness(facts, convex_set, regularizer)
    if output is Output.LAST:
        return whole_steps((4 * curvature / noise) ** (2 / 3))
    return whole_steps(math.sqrt(2 * loss_range(facts, convex_set) * curvature) / noise)


def frank_wolfe_rate(
    facts: RiskFacts, convex_set: ConvexSet, regularizer: ElasticNet, output: Output, steps: int
) -> Callable[[int], float]:
    """Return step sizes: 2/(k + 2) for the last iterate, otherwise the constant min(1, sqrt(2 B / (C T)))."""
    if output is Output.LAST:
        return lambda k: 2 / (k + 2)
    curvature = ridged_smoothness(facts, convex_set, regularizer)
    constant = min(1.0, math.sqrt(2 * loss_range(facts, convex_set) / (curvature * steps)))
    return lambda k: constant

"""The exact law of what every release adds, and how much noise it draws: 5% less noise is seen.

Noise in many dimensions is many independent draws, so a release on a record without influence shows its law:
the sum of squares of d standardised coordinates is chi-square, known to sqrt(2 / d). Draws go through the
real ``release`` with a seeded source that counts them.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privopt.mechanisms import MECHANISMS
from privopt.mechanisms.audit.neighbours import LossTable, ParityOracle, ParityProblem, SignLattice
from privopt.mechanisms.convex.svrg import difference_bound
from privopt.mechanisms.errors import InexactDrawError, PlanMismatchError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.registry import RISK_MECHANISMS
from privopt.mechanisms.risk.iteration import Output
from privopt.mechanisms.risk.sets import default_start
from privopt.oracles import Law, Task
from privopt.oracles.draw.interface import DrawRequest, Exactness, GibbsOracle, Sample, Sampler
from privopt.oracles.minimize.interface import Proposal, Query, Solver
from privopt.problems import IntegerLattice, ZeroOneHalfspace
from privopt.problems.convex.losses import HuberLoss
from privopt.problems.convex.regularizers import ridge
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.convex.sets.norm_balls import L1Ball, L2Ball
from privopt.problems.discrete.objective import UNIT, Perturbation
from privopt.problems.discrete.problem import DiscreteProblem

Vector = NDArray[np.float64]
D = 20_000
SEED = 7
BUDGET = {"epsilon": 1.0, "delta": 1e-3}


class Counting(NoiseSource):
    """A seeded source that counts what is drawn, by kind and scale."""

    def __init__(self) -> None:
        super().__init__(insecure_seed=SEED)
        self.drawn: Counter[str] = Counter()

    def _count(self, kind: str, size: Any) -> None:
        self.drawn[kind] += math.prod(size) if isinstance(size, tuple) else size

    def gaussian(self, scale: float, size: Any = 1) -> Any:
        self._count("gaussian", size)
        return super().gaussian(scale, size)

    def laplace(self, scale: float, size: Any = 1) -> Any:
        self._count("laplace", size)
        return super().laplace(scale, size)

    def gumbel(self, size: Any = 1) -> Any:
        self._count("gumbel", size)
        return super().gumbel(size)

    def discrete_gaussian(self, exponent: int, size: Any = 1) -> Any:
        self._count("discrete gaussian", size)
        return super().discrete_gaussian(exponent, size)


def follows(standardised: Vector, cdf: Callable[[Vector], Vector], second_moment: float) -> None:
    """A sample fits its law, and the same tests see a scale that is off by 5%."""
    size = standardised.size
    fourth = {1.0: 3.0, 2.0: 24.0}[second_moment]  # of the normal and the Laplace law
    spread = math.sqrt((fourth - second_moment**2) / size)
    excess = float(np.mean(standardised**2)) - second_moment
    assert abs(excess) < 4 * spread
    assert 4 * spread < 0.0975 * second_moment  # 1 - 0.95^2
    assert stats.kstest(standardised, cdf).pvalue > 1e-4


def normal(standardised: Vector) -> None:
    follows(standardised, stats.norm.cdf, 1.0)


# --- lattice mechanisms that perturb ---------------------------------------------------------------------


class Recording(ParityOracle):
    """Minimises over a parity of any dimension, and keeps what was added to its loss."""

    def build(self, problem: DiscreteProblem, task: Task) -> Solver:
        inner = super().build(problem, task)

        def solve(query: Query) -> Proposal:
            KEPT.append(query.perturbation)
            return inner(query)

        return solve


KEPT: list[Perturbation] = []


def perturbing(
    name: str, lattice: IntegerLattice, scale: float, runs: int = 1
) -> tuple[Any, Counter[str], Vector]:
    """A plan with noise of a scale, what its releases draw, and the tables that they ask the oracle to add.

    Tables have shape (runs * dimension, levels), in units of loss.
    """
    spend = PrivacySpend.approximate(1.0, 1e-3, name)
    plan: Any = MECHANISMS[name](ParityProblem, lattice, spend, 1, scale)  # type: ignore[call-arg]
    oracle, source = Recording().prepare(ParityProblem([1], lattice), plan.question), Counting()
    KEPT.clear()
    for _ in range(runs):
        assert plan.release(oracle, source).spend.insecure_seed == SEED
    assert len(KEPT) == runs
    return plan, source.drawn, np.concatenate([np.array(added.unary) for added in KEPT]) / UNIT


@pytest.mark.parametrize("name", ["rspm", "rspm-laplace"])
def test_rspm_adds_its_noise_to_every_separator(name: str) -> None:
    """On {0, 1}^d separator k is lost by w_k = 1, so the table of coordinate k is (0, eta_k)."""
    plan, drawn, tables = perturbing(name, IntegerLattice(0, 1, dimension=1000), 30.0, runs=D // 1000)
    assert not np.any(tables[:, 0])
    assert drawn == {"gaussian" if name == "rspm" else "laplace": D}
    standardised = tables[:, 1] / plan.scale
    if name == "rspm":
        normal(standardised)
    else:
        follows(standardised, stats.laplace.cdf, 2.0)


def test_opdisc_adds_its_noise_to_every_coordinate() -> None:
    """On {-1, 1}^D, pi(w) = w / sqrt(D): the table of coordinate j is -eta_j w_j / sqrt(D)."""
    plan, drawn, tables = perturbing("opdisc", SignLattice(D), 3000.0)
    np.testing.assert_array_equal(tables[:, 0], -tables[:, 2])
    assert drawn == {"gaussian": D + 1}
    normal(-tables[:, 2] * math.sqrt(D) / plan.sigma)


def test_opdisc_adds_noise_to_the_length_of_a_point() -> None:
    """Its last coordinate weighs sqrt(1 - |w|^2 / D^2), which is 1 at the origin: one draw per release."""
    lattice = IntegerLattice(-1, 1, dimension=1)
    plan: Any = MECHANISMS["opdisc"].plan(ZeroOneHalfspace, lattice, epsilon=1.0, delta=1e-3)
    heights = []

    class Heights(ParityOracle):
        def refusals(self, problem: DiscreteProblem, task: Task) -> list[str]:
            return []

        def build(self, problem: DiscreteProblem, task: Task) -> Solver:
            def solve(query: Query) -> Proposal:
                assert query.perturbation.radial is not None
                heights.append(int(query.perturbation.radial[0]))
                values = problem.values(np.array([[-1], [0], [1]]), query.perturbation)
                best = int(np.argmin(values))
                return Proposal(np.array([best - 1]), int(values[best]), lexicographic=True)

            return solve

    oracle = Heights().prepare(ZeroOneHalfspace([[1]], [1], lattice), plan.question)
    source = NoiseSource(insecure_seed=SEED)
    for _ in range(4000):
        plan.release(oracle, source)
    normal(-np.array(heights) / UNIT / plan.sigma)


# --- lattice mechanisms that draw --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stub(GibbsOracle):
    """Draws the first point, states a given exactness and keeps what was asked."""

    exactness: Exactness
    asked: list[DrawRequest]

    name = "stub"

    def refusals(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> list[str]:
        return []

    def build(self, problem: DiscreteProblem, law: Law = Law.GIBBS) -> Sampler:
        exactness, asked = self.exactness, self.asked

        class First(Sampler):
            def draw(self, request: DrawRequest) -> Sample:
                asked.append(request)
                return Sample(problem.lattice.low, exactness)

        return First()


DRAWING = ["exponential", "permute-and-flip"]
LATTICE = IntegerLattice(0, 1, dimension=2)
TABLE = LossTable([[0, 1, 1, 0]], LATTICE)


def draw(name: str, epsilon: float, error: float, lost: float = 0.0) -> DrawRequest | None:
    """Request to an oracle of that exactness; None if the release is refused."""
    plan: Any = MECHANISMS[name].plan(LossTable, LATTICE, epsilon=epsilon)
    asked: list[DrawRequest] = []
    source = NoiseSource()
    try:
        plan.release(Stub(Exactness(error, lost), asked).prepare(TABLE, plan.question), source)
    except InexactDrawError:
        return None
    assert asked[0].random is source
    return asked[0]


@pytest.mark.parametrize("name", DRAWING)
@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 30.0])
def test_inverse_temperature_and_arithmetic_share_epsilon(name: str, epsilon: float) -> None:
    """Two probabilities, each off by exp(error), of a law that spends 2 beta: 2 beta + 2 error <= epsilon."""
    accepted = [(e, draw(name, epsilon, e)) for e in np.geomspace(1e-7, 1e-2, 400) * epsilon]
    released = [(e, request.beta) for e, request in accepted if request is not None]
    assert 0 < len(released) < len(accepted)
    for error, beta in released:
        assert 2 * beta + 2 * error <= epsilon * (1 + 1e-15)
    assert 2 * released[0][1] >= epsilon * (1 - 1e-3)
    assert draw(name, epsilon, math.nan) is None


@pytest.mark.parametrize("name", DRAWING)
def test_lost_mass_that_could_ever_show_is_refused(name: str) -> None:
    """A claim with delta = 0 stands for an event below 2^-128 only."""
    assert draw(name, 1.0, 0.0, 2.0**-128) is not None
    for lost in (2.0**-127, 1e-12, 0.5, math.nan):
        assert draw(name, 1.0, 0.0, lost) is None


@pytest.mark.parametrize("name", sorted(MECHANISMS))
def test_a_plan_is_refused_to_another_type_of_problem_over_the_same_lattice(name: str) -> None:
    """Another type may have other losses, and a separator of one tells nothing apart in another."""
    plan: Any = MECHANISMS[name].plan(LossTable, LATTICE, **BUDGET)
    plan.check_problem(TABLE)
    with pytest.raises(PlanMismatchError, match="LossTable"):
        plan.check_problem(ParityProblem([1], LATTICE))
    with pytest.raises(PlanMismatchError, match="over"):
        plan.check_problem(LossTable([[0, 1]], IntegerLattice(0, 1, dimension=1)))


# --- convex mechanisms -------------------------------------------------------------------------------------
#
# A row of zeros has no gradient, so releases are noise alone; every loss is Huber's.

WIDE = L2Ball(D, 1e9)
IDLE = EmpiricalRisk(np.zeros((1, D)), np.zeros(1), HuberLoss(1.0))


def planned(name: str, **options: Any) -> Any:
    return RISK_MECHANISMS[name].plan(IDLE.facts, WIDE, **{**BUDGET, **options})


def released(plan: Any, risk: EmpiricalRisk = IDLE) -> tuple[Vector, Counter[str]]:
    source = Counting()
    return plan.release(risk, source).point, source.drawn


@pytest.mark.parametrize("name", ["dp-gd", "dp-pgd", "dp-pmd", "dp-accmd"])
def test_full_batch_steps_add_their_noise_to_every_gradient(name: str) -> None:
    """The last iterate is linear in the noises of three steps; the weights come from impulses."""
    space = None if name == "dp-gd" else WIDE
    plan: Any = RISK_MECHANISMS[name].plan(IDLE.facts, space, **BUDGET, steps=3, output=Output.LAST)
    method = plan._method(default_start(plan.convex_set))
    weights = []
    for impulse in range(3):
        state = method.start
        for k in range(3):
            g = np.zeros(D)
            g[0] = float(k == impulse)
            state = method.step(k, state, method.query(k, state), g)
        weights.append(method.point(state)[0])
    point, drawn = released(plan)
    assert drawn == {"discrete gaussian": 3 * D}
    normal(point / (plan.vector_noise.sigma * float(np.linalg.norm(weights))))


def test_frank_wolfe_over_a_ball_adds_its_noise_before_the_linear_step() -> None:
    """v = -(g + xi) / |g + xi|: |xi| / |g| is read off the direction. g = (G, 0, ...), of 100,000 records."""
    n = 100_000
    X = np.zeros((8, D))
    X[:, 0] = 1.0
    risk = EmpiricalRisk(X, np.full(8, 1e9), HuberLoss(1.0))
    facts = dataclasses.replace(risk.facts, n_records=n)
    plan: Any = RISK_MECHANISMS["dp-fw-l2"].plan(facts, L2Ball(D, 1.0), **BUDGET, steps=1, output=Output.LAST)
    plan = dataclasses.replace(plan, facts=risk.facts)
    point, drawn = released(plan, risk)
    assert drawn == {"discrete gaussian": D}
    slope = float(risk.gradient(np.zeros(D))[0])
    normal(point[1:] * abs(slope) / point[0] / plan.vector_noise.sigma)


def test_frank_wolfe_over_vertices_adds_gumbel_noise_of_its_scale() -> None:
    """Scripted noise (a, 0): the first vertex is chosen from a = (s_2 - s_1) / scale on, to the last bits."""
    risk = EmpiricalRisk(np.ones((1, 1)), np.array([1e9]), HuberLoss(1.0))
    ball = L1Ball(1, 1.0)
    plan: Any = RISK_MECHANISMS["dp-fw-l1"].plan(risk.facts, ball, **BUDGET, steps=1, output=Output.LAST)

    class Scripted(NoiseSource):
        first = 0.0

        def gumbel(self, size: Any = 1) -> Any:
            assert size == 2
            return np.array([self.first, 0.0])

    def chosen(a: float) -> float:
        source = Scripted()
        source.first = a
        return float(plan.release(risk, source).point[0])

    scores = ball.vertex_scores(-risk.gradient(np.zeros(1)))
    low, high = -1e6, 1e6
    assert chosen(low) == ball.vertex(1)[0]
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (low, middle) if chosen(middle) == ball.vertex(0)[0] else (middle, high)
    assert high == pytest.approx((scores[1] - scores[0]) / plan.selection.scale, rel=1e-9)
    assert released(plan, risk)[1] == {"gumbel": 2}


def test_stochastic_gradient_adds_its_noise_to_every_sum() -> None:
    plan = planned("dp-sgd", steps=3, batch=1, output=Output.LAST)
    point, drawn = released(plan)
    assert drawn == {"discrete gaussian": 3 * D}
    per_step = plan.step_size / (plan.sampling * plan.facts.n_records) * plan.vector_noise.sigma
    normal(point / (per_step * math.sqrt(3)))


@pytest.mark.parametrize("name", ["dp-svrg", "dp-svrg++"])
def test_variance_reduction_adds_noise_to_anchors_and_to_differences(name: str) -> None:
    """One inner step, from the anchor: x = -eta xi. Two: the average has 3/2 of xi and 1/2 of the batch's."""
    one = planned(name, rounds=(1,), batch=1, regularizer=ridge(1e-12))
    x, drawn = released(one)
    assert drawn["discrete gaussian"] in (D, 2 * D)  # noise of the inner step is drawn ahead, and not needed
    eta = one.step_size
    normal(x / (eta * one.anchor_noise.sigma))
    two = dataclasses.replace(planned(name, rounds=(2,), batch=1, regularizer=ridge(1e-12)), multiplier=100.0)
    first = dataclasses.replace(two, rounds=(1,))
    middle = -eta * two.anchor_noise.sigma * _unit(released(first)[0])
    batch = two.multiplier * difference_bound(IDLE.facts, middle, np.zeros(D)) / two.sampling
    spread = math.hypot(1.5 * eta * two.anchor_noise.sigma, 0.5 * eta * batch)
    assert 0.5 * eta * batch > 0.9 * spread  # it is the batch's noise that is seen
    normal(released(two)[0] / spread)


def test_every_anchor_has_noise_of_its_own() -> None:
    """One inner step an epoch, each from its anchor: x = sum of -eta xi_e / (1 + eta l2)^(later steps)."""
    l2 = 30.0
    plan = planned("dp-svrg", rounds=(1, 1, 1), batch=1, regularizer=ridge(l2))
    low = dataclasses.replace(plan.anchor_noise, sigma=1e-3 * plan.anchor_noise.sigma)  # as for more records
    plan = dataclasses.replace(plan, anchor_noise=low)
    x, _ = released(plan)
    sigmas = [noise.sigma for noise in plan.anchor_noises]
    assert sigmas[0] > 1.1 * sigmas[2]
    kept = 1 / (1 + plan.step_size * l2)
    spread = plan.step_size * math.hypot(*[s * kept ** (3 - e) for e, s in enumerate(sigmas)])
    normal(x / spread)


def _unit(x: Vector) -> Vector:
    """A vector of length sqrt(D), what |xi| / sigma is to a share of 1 / sqrt(2 D)."""
    return x / float(np.linalg.norm(x)) * math.sqrt(D)


def test_output_perturbation_adds_its_noise_to_the_minimum() -> None:
    plan = planned("output-perturbation", regularizer=ridge(0.5))
    point, drawn = released(plan)
    assert drawn == {"discrete gaussian": D}
    normal(point / plan.vector_noise.sigma)


def test_objective_perturbation_adds_its_noise_to_the_objective_and_to_the_minimum() -> None:
    """The minimum of (l2/2) |w|^2 + <b, w> is -b / l2; what is left of the release is the second noise."""
    plan = planned("objective-perturbation", regularizer=ridge(0.5))
    point, drawn = released(plan)
    assert drawn == {"gaussian": D, "discrete gaussian": D}
    l2 = plan.regularizer.l2
    normal(-point * l2 / plan.sigma)
    minimum = -NoiseSource(insecure_seed=SEED).gaussian(plan.sigma, D) / l2
    normal((point - minimum) / plan.vector_noise.sigma)


def test_a_random_iterate_costs_noise_up_to_it() -> None:
    plan = planned("dp-pgd", steps=9, output=Output.RANDOM)
    stops = int(NoiseSource(insecure_seed=SEED).integers(9)[0])
    assert released(plan)[1] == ({"discrete gaussian": stops * D} if stops else {})

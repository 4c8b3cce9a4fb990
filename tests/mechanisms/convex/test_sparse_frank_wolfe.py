"""dp-fw-l1 on sparse rows: the law of its draws, the drift of its predictions, and what it costs."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from privopt.mechanisms.convex import sparse_frank_wolfe
from privopt.mechanisms.convex.frank_wolfe import DPFrankWolfeL1
from privopt.mechanisms.convex.sparse_frank_wolfe import SparsePath, Vertex, VertexDraws, applies
from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.selection_noise import selection_steps
from privopt.mechanisms.risk.iteration import Output, choose_output
from privopt.oracles.draw.interface import race_error
from privopt.problems.convex import sparse_columns
from privopt.problems.convex.losses import HuberLoss, LogisticLoss
from privopt.problems.convex.regularizers import ElasticNet, ridge
from privopt.problems.convex.risk import EmpiricalRisk, RiskFacts
from privopt.problems.convex.sets.hull import ConvexHull
from privopt.problems.convex.sets.norm_balls import L1Ball
from privopt.problems.convex.sets.simplex import Simplex

N, P = 60, 6
UNIT = 2.0**-53


def sparse_risk(n: int = N, p: int = P, seed: int = 0, **options: Any) -> EmpiricalRisk:
    """Rows in which feature j occurs with probability 2^-j, of both signs; a label that feature 0 tells."""
    rng = np.random.default_rng(seed)
    X = rng.normal(0.6, 0.5, (n, p)) * (rng.random((n, p)) < 0.5 ** np.arange(p))
    y = np.where(X[:, 0] + rng.normal(0, 0.3, n) > 0, 1.0, -1.0)
    return EmpiricalRisk(sp.csr_array(X), y, LogisticLoss(), norm="linf", **options)


def enumerated(risk: EmpiricalRisk, space: Any, x: Any, scale: float) -> Any:
    """The law over all vertices, from the gradient over all rows."""
    scores = space.vertex_scores(-risk.gradient(x)) / scale
    return np.exp(scores - np.logaddexp.reduce(scores))


@pytest.mark.parametrize("space", [L1Ball(P, 2.0), Simplex(P, 2.0)], ids=["ball", "simplex"])
@pytest.mark.parametrize(("frequent", "scale"), [(0, 0.7), (2, 0.2), (P, 0.01)])
def test_draws_have_the_enumerated_law(space: Any, frequent: int, scale: float) -> None:
    """Rare features alone, two frequent ones of six, and frequent ones alone; another scale is noticed."""
    risk = sparse_risk()
    x = space.vertex(0) / 4
    draws = VertexDraws.of(risk, space, scale)
    assert draws.frequent.size == frequent
    slopes = SparsePath(risk, x, space.size, draws.columns).slopes()
    source = NoiseSource(insecure_seed=5)
    drawn = [draws.draw(slopes, source) for _ in range(4_000)]
    counts = np.bincount([v.feature + P * (v.sign < 0) for v in drawn], minlength=space.vertex_count)

    def p_value(law: Any) -> float:
        likely = 4_000 * law >= 5
        seen, expected = counts[likely], 4_000 * law[likely]
        rest = [4_000 - seen.sum(), 4_000 - expected.sum()]
        return float(chisquare(np.append(seen, rest[0]), np.append(expected, rest[1] + 1e-9)).pvalue)

    assert p_value(enumerated(risk, space, x, scale)) > 1e-3
    if frequent < P:
        assert p_value(enumerated(risk, space, x, scale / 2)) < 1e-6


def test_a_release_draws_each_vertex_at_the_iterate_before_it() -> None:
    """Two steps over a ball in the plane: 16 paths, whose law follows from the gradients along them."""
    X = sp.csr_array(np.repeat([[1.0, 0.0], [1.0, 1.0], [0.0, -1.0]], (20, 5, 3), axis=0))
    risk = EmpiricalRisk(X, np.repeat([1.0, -1.0, 1.0], (20, 5, 3)), LogisticLoss(), norm="linf")
    ball = L1Ball(2, 4.0)
    plan = DPFrankWolfeL1.plan(risk.facts, ball, epsilon=8.0, delta=1e-3, steps=2)
    rates, law = (1.0, 2 / 3), {}
    for first, second in itertools.product(range(4), repeat=2):
        x = ball.vertex(first)
        p = enumerated(risk, ball, np.zeros(2), plan.selection.scale)[first]
        p *= enumerated(risk, ball, x, plan.selection.scale)[second]
        law[tuple(np.round((1 - rates[1]) * x + rates[1] * ball.vertex(second), 6))] = p
    source = NoiseSource(insecure_seed=1)
    found = Counter(tuple(np.round(plan.release(risk, source).point, 6) + 0.0) for _ in range(1_500))
    assert set(found) <= {tuple(np.array(k) + 0.0) for k in law}
    likely = {k: 1_500 * p for k, p in law.items() if 1_500 * p >= 5}
    seen = [found[tuple(np.array(k) + 0.0)] for k in likely]
    expected = list(likely.values())
    rest = (1_500 - sum(seen), 1_500 - sum(expected))
    assert chisquare([*seen, rest[0]], [*expected, rest[1]]).pvalue > 1e-3


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 60), st.sampled_from([Output.LAST, Output.RANDOM]))
def test_predictions_drift_within_their_bound(seed: int, steps: int, output: Output) -> None:
    """Against rational arithmetic: 3 T 2^-53 R. Gradients then differ by L times that, and their rounding."""
    rng, size = np.random.default_rng(seed), 3.0
    risk = sparse_risk(12, 4, seed)
    columns = VertexDraws.of(risk, L1Ball(4, size), 1.0).columns
    path = SparsePath(risk, np.zeros(4), size, columns)
    A = sp.csc_array((columns.values, columns.rows, columns.starts), shape=(12, 4)).toarray()
    exact = [Fraction(0)] * 12
    for k in range(steps):
        rate = 2 / (k + 2) if output is Output.LAST else 0.1
        vertex = Vertex(int(rng.integers(4)), int(rng.choice([-1, 1])))
        path.step(vertex, rate)
        share, goal = Fraction(rate), vertex.sign * Fraction(size)
        exact = [
            (1 - share) * z + share * goal * Fraction(a)
            for z, a in zip(exact, A[:, vertex.feature], strict=True)
        ]
    bound = 3 * steps * UNIT * size
    assert max(abs(Fraction(z) - e) for z, e in zip(path.predictions, exact, strict=True)) <= bound
    point = path.output(Output.LAST)
    found = columns.sums(np.arange(4), path.slopes()) / 12
    # The point has T roundings of shares and of sums, a product with it 4 more, slopes 2^-50 each.
    allowed = 0.25 * (bound + (2 * steps + 8) * UNIT * size) + 2.0**-50 + 2 * risk.facts.rounding
    assert np.max(np.abs(found - risk.gradient(point))) <= allowed


@pytest.mark.parametrize("output", Output)
@pytest.mark.parametrize("steps", [0, 1, 7])
def test_outputs_are_those_of_the_iterates(output: Output, steps: int) -> None:
    rng, start = np.random.default_rng(2), np.array([0.5, -0.25, 0, 0, 0, 0])
    risk, ball = sparse_risk(), L1Ball(P, 2.0)
    path = SparsePath(risk, start, ball.size, VertexDraws.of(risk, ball, 1.0).columns)
    x, iterates = start, []
    for k in range(steps):
        vertex, rate = Vertex(int(rng.integers(P)), int(rng.choice([-1, 1]))), 1.5 / (k + 2)
        path.step(vertex, rate)
        x = (1 - rate) * x + rate * ball.vertex(vertex.feature + P * (vertex.sign < 0))
        iterates.append(x)
    expected = choose_output(iter(iterates), output, start)
    assert path.output(output) == pytest.approx(expected, rel=1e-12, abs=1e-15)
    assert path.predictions == pytest.approx(risk.predictions(x), rel=1e-12, abs=1e-14)


def test_counts_stand_for_repeated_rows() -> None:
    """The same scores and the same frequent features, from each row once with its count."""
    few, counts = sparse_risk(20), np.arange(1, 21)
    counted = EmpiricalRisk(few.X, few.y, LogisticLoss(), norm="linf", counts=counts)
    again = EmpiricalRisk(
        sp.csr_array(np.repeat(few.X.toarray(), counts, axis=0)), np.repeat(few.y, counts), LogisticLoss(),
        norm="linf",
    )  # fmt: skip
    found = []
    for risk in (counted, again):
        draws = VertexDraws.of(risk, L1Ball(P, 2.0), 0.2)
        slopes = SparsePath(risk, np.full(P, 0.1), 2.0, draws.columns).slopes()
        found.append((draws.frequent.tolist(), draws.factor * draws.columns.sums(np.arange(P), slopes)))
    assert found[0][0] == found[1][0] != []
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-12)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns and rows cut into many parts; slopes of a NumPy loop may differ in the last bits at a cut."""
    risk = sparse_risk()
    columns = VertexDraws.of(risk, L1Ball(P, 2.0), 1.0).columns
    path, weights = SparsePath(risk, np.full(P, 0.3), 2.0, columns), np.linspace(-1, 1, N)
    features, slopes = np.array([5, 0, 2, 2, 1, 4]), path.slopes()
    whole = columns.sums(features, weights)
    monkeypatch.setattr(sparse_columns, "_LEAST_ENTRIES", 10)
    monkeypatch.setattr(sparse_frank_wolfe, "_ROWS", 7)
    assert len(columns._parts(features)) > 3
    assert columns.sums(features, weights).tolist() == whole.tolist()
    assert whole == pytest.approx((risk.clipped_rows().toarray().T @ weights)[features], rel=1e-12)
    assert path.slopes() == pytest.approx(slopes, rel=1e-14)


def test_slopes_stay_within_the_lipschitz_constant_whatever_a_loss_returns() -> None:
    class Steep(HuberLoss):
        def slope(self, z: Any, y: Any) -> Any:
            return 5 * super().slope(z, y)

    risk = EmpiricalRisk(sp.csr_array(np.eye(2)), np.array([9.0, -9.0]), Steep(1.0), norm="linf")
    draws = VertexDraws.of(risk, L1Ball(2, 1.0), 1.0)
    assert SparsePath(risk, np.zeros(2), 1.0, draws.columns).slopes().tolist() == [-1.0, 1.0]


def test_where_it_applies() -> None:
    risk, none = sparse_risk(), ElasticNet()
    assert applies(risk, L1Ball(P, 1.0), none)
    assert applies(risk, Simplex(P, 1.0), none)
    assert not applies(risk, L1Ball(P, 1.0), ridge(0.1))
    assert not applies(risk, ConvexHull(np.eye(P)), none)
    assert not applies(EmpiricalRisk(risk.X.toarray(), risk.y, LogisticLoss()), L1Ball(P, 1.0), none)


def test_a_step_needs_as_much_randomness_for_many_features_as_for_few() -> None:
    """Rows without a feature that eight over epsilon of them have: no clock, about seven proposals a step."""

    class Counting(NoiseSource):
        words = 0

        def bits(self, n: int) -> Any:
            self.words += n
            return super().bits(n)

    used = []
    for p in (10**3, 10**6):
        X = sp.csr_array((np.ones(500), np.arange(500), np.arange(501)), shape=(500, p))
        risk = EmpiricalRisk(X, np.ones(500), LogisticLoss(), norm="linf")
        plan = DPFrankWolfeL1.plan(risk.facts, L1Ball(p, 1.0), epsilon=1.0, delta=1e-6, steps=20)
        source = Counting()
        plan.release(risk, source)
        used.append(source.words)
    assert max(used) <= 20 * 500  # where all vertices would need 2 p a step


def test_a_selection_pays_for_the_rounding_of_its_law() -> None:
    """The range of a loss grows by four times the error of a log probability; tiny budgets are refused."""
    facts, ball = RiskFacts(10**4, 10**6, LogisticLoss(), norm="linf"), L1Ball(10**6, 3.0)
    noise = selection_steps(1.0, 1e-9, steps=50, facts=facts, convex_set=ball)
    assert noise.float_epsilon >= 4 * (race_error(math.log(2 * 10**6)) + 2.0**-40)
    # A race over scores of up to 3, the largest gradient times the size, is off by as much more.
    further = 4 * (race_error(3.0 / noise.scale) - race_error(0.0))
    exact = facts.sensitivity_linf * 3.0
    assert 2 * (noise.sensitivity / (1 + 1e-9) - exact) / noise.scale >= further > 0
    assert noise.scale * (noise.step_epsilon - noise.float_epsilon) == pytest.approx(
        2 * noise.sensitivity, rel=1e-14
    )
    assert noise.scale > 2 * noise.sensitivity / noise.step_epsilon * (1 + 1e-11)
    with pytest.raises(PrivacyParameterError, match="too coarse"):
        selection_steps(1e-10, 1e-300, steps=50, facts=facts, convex_set=ball)


def test_rare_features_are_those_of_few_records() -> None:
    """A feature of at most 8 / epsilon records is rare, epsilon that of a step: its score is within 2."""
    n, steps = 400, 4
    facts = RiskFacts(n, 2, LogisticLoss(), norm="linf")
    plan = DPFrankWolfeL1.plan(facts, L1Ball(2, 7.0), epsilon=2.0, delta=1e-6, steps=steps)
    most = math.floor(8 / plan.selection.step_epsilon)
    X = np.zeros((n, 2))
    X[:most, 0] = X[: most + 1, 1] = 1
    risk = EmpiricalRisk(sp.csr_array(X), np.ones(n), LogisticLoss(), norm="linf")
    draws = VertexDraws.of(risk, L1Ball(2, 7.0), plan.selection.scale)
    assert (draws.rare.tolist(), draws.frequent.tolist()) == ([0], [1])

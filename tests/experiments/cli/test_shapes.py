"""Shapes: contributions by level against predictions and points, bands against fresh noise, pictures."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from privopt.experiments.workbench.shape_plot import shape_plot
from privopt.experiments.workbench.shapes import Shapes, shapes_of
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustRegression,
    PrivateTreeClassifier,
)
from privopt.problems import Binned, Categorical, MissingLevel, Numeric, Schema
from privopt.problems.errors import InvalidInputError, MissingExtraError

SCHEMA = Schema(
    [
        MissingLevel(Numeric("age", 20, 80, zero=20, one=60)),
        Binned("bmi", [15, 25, 30, 45]),
        Categorical("ward", ["A", "B"], outside="ignore"),
        MissingLevel(Categorical("income", ["$1-$2", "$3"])),
    ],
    intercept=True,
    labels={"age": "Age at entry"},
)
# A record of each level: the ends and the middle of age first.
CELLS: dict[str, list[Any]] = {
    "age": [20, 50, 80, None],
    "bmi": [20, 27, 40],
    "ward": ["A", "B", "C"],
    "income": ["$1-$2", "$3", None],
}
LEVELS = {
    "Age at entry": ("20", "", "80", "missing"),
    "bmi": ("below 25", "25 to below 30", "30 or more"),
    "ward": ("A", "B", "any other"),
    "income": ("$1-$2", "$3", "missing"),
}
rng = np.random.default_rng(0)
PEOPLE = pd.DataFrame(
    {name: pd.Series(rng.choice(np.array(cells, dtype=object), 4000)) for name, cells in CELLS.items()}
)
COST = 20 + 0.3 * PEOPLE["age"].fillna(60).astype(float) + 9 * (PEOPLE["ward"] == "B")
PAID = pd.cut(COST, [-np.inf, 30, 45, np.inf], labels=False)

Made = Callable[[], Any]
REGRESSION = partial(PrivateLinearRegression, 3.0, schema=SCHEMA, label_range=(0, 100), insecure_seed=1)
CARD = partial(PrivateHalfspaceClassifier, 3.0, schema=SCHEMA, insecure_seed=1)
LOGISTIC = partial(PrivateLogisticRegression, 3.0, schema=SCHEMA, insecure_seed=1)
FITTED: dict[str, Made] = {
    "regression": lambda: REGRESSION().fit(PEOPLE, COST),
    "descent": lambda: REGRESSION(mechanism="dp-gd").fit(PEOPLE, COST),
    "robust": lambda: PrivateRobustRegression(3.0, schema=SCHEMA, insecure_seed=1).fit(PEOPLE, COST),
    "logistic": lambda: LOGISTIC(classes=(0, 1), mechanism="objective-perturbation-hessian").fit(
        PEOPLE, PAID > 0
    ),
    "three classes": lambda: LOGISTIC(classes=(0, 1, 2), numbers="lines").fit(PEOPLE, PAID),
}


def scores(model: Any, column: str) -> np.ndarray:
    """Scores of records that differ in one column alone, shape (levels, series)."""
    cells = CELLS[column]
    table = pd.DataFrame({name: [CELLS[name][1]] * len(cells) for name in CELLS} | {column: cells})
    found = model.decision_function(table) if hasattr(model, "classes_") else model.predict(table)
    return np.asarray(found, dtype=np.float64).reshape(len(cells), -1)


@pytest.fixture(scope="module", params=FITTED)
def model(request: pytest.FixtureRequest) -> Any:
    return FITTED[request.param]()


def test_contributions_are_differences_of_predictions(model: Any) -> None:
    found = shapes_of(model)
    for shape, column in (
        (s, next(c for c, t in SCHEMA.titles.items() if t == s.title)) for s in found.shapes
    ):
        assert shape.levels == LEVELS[shape.title]
        expected = scores(model, column)
        centre = expected[1] if column == "age" else np.mean(expected, axis=0)
        assert shape.values == pytest.approx(expected - centre, rel=1e-9, abs=1e-9)
    assert [s.spread for s in found.shapes] == sorted((s.spread for s in found.shapes), reverse=True)
    assert {s.title for s in found.shapes} == set(LEVELS)
    assert found.series == (("0", "1", "2") if found.shapes[0].values.shape[1] == 3 else ())


def test_points_are_those_of_the_card() -> None:
    card = CARD(classes=(0, 1)).fit(PEOPLE, (PAID > 0).astype(int)).card_
    found, columns = shapes_of(card), {column.shown: column for column in card.columns}
    assert found.unit == "points"
    for shape in found.shapes:
        column = columns[shape.title]
        ends = () if column.proportion is None else tuple(points for _, points in column.proportion)
        drawn = [*shape.values[3 * shape.is_line :, 0], *shape.values[[0, 2] if shape.is_line else [], 0]]
        assert drawn == [*(points for _, points in column.rows), *ends]
    assert all(shape.band is None for shape in found.shapes)
    assert "No band" in " ".join(found.notes)


def small_card(**options: Any) -> PrivateHalfspaceClassifier:
    """A card at a budget at which its model is one of noisy moments."""
    card = PrivateHalfspaceClassifier(
        0.3, schema=SCHEMA, classes=(0, 1), numbers="lines", insecure_seed=1, **options
    )
    return card.fit(PEOPLE, (PAID > 0).astype(int))


def test_points_have_the_band_of_the_model_that_they_are_rounded_from() -> None:
    model = small_card()
    assert model.source_ is not None
    assert model.source_.deviations is not None
    found = shapes_of(model)
    assert "before a card was drawn" in found.notes[0]
    ward = next(shape for shape in found.shapes if shape.title == "ward")
    assert ward.band is not None
    start = SCHEMA.feature_names.index("ward=A")
    weights, spread = (
        given[start : start + 2] for given in (model.source_.weights, model.source_.deviations)
    )
    middles, widths = np.mean(ward.band[:2], axis=1), np.ptp(ward.band[:2], axis=1)
    scale = np.diff(middles) / np.diff(weights)
    assert widths == pytest.approx(2 * 1.96 * scale * spread)
    assert ward.values[:, 0].tolist() == [*np.rint(middles), 0]
    assert ward.band[2].tolist() == [0, 0]  # any other ward has no feature, and no noise
    age = next(shape for shape in found.shapes if shape.is_line)
    assert age.band is not None
    assert np.ptp(age.band[:3], axis=1) == pytest.approx([np.ptp(age.band[0]), 0, np.ptp(age.band[0])])
    unrounded = np.mean(
        np.concatenate([shape.band for shape in found.shapes if shape.band is not None]), axis=1
    )
    points = np.concatenate([shape.values[:, 0] for shape in found.shapes])
    assert np.max(np.abs(unrounded - points)) < 1


def test_nineteen_of_twenty_true_points_are_in_their_bands() -> None:
    """Up to one factor, which points are free of. Half or twice the spread would cover 67% or 100%."""
    inside, draws = [], np.random.default_rng(5)
    names = [f"c{k}" for k in range(6)]
    schema = Schema([Categorical(name, [0, 1, 2, 3]) for name in names], intercept=True)
    for seed in range(12):
        effects = draws.normal(0, 0.6, (6, 4))
        effects -= np.mean(effects, axis=1, keepdims=True)
        codes = draws.integers(0, 4, (2000, 6))
        odds = np.sum(effects[np.arange(6), codes], axis=1) - 0.7
        labels = (draws.random(2000) < 1 / (1 + np.exp(-odds))).astype(int)
        card = PrivateHalfspaceClassifier(1.0, schema=schema, classes=(0, 1), insecure_seed=seed)
        source = card.fit(pd.DataFrame(codes, columns=names), labels).source_
        assert source is not None
        assert source.deviations is not None
        own = source.weights[:-1].reshape(6, 4)
        own = (own - np.mean(own, axis=1, keepdims=True)).ravel()
        factor = float(own @ effects.ravel()) / float(own @ own)
        inside.append(np.abs(factor * own - effects.ravel()) <= 1.96 * factor * source.deviations[:-1])
    assert 0.88 < np.mean(inside) < 0.985  # 288 of them


def test_bands_of_points_are_saved_and_files_of_before_have_none(tmp_path: Path) -> None:
    model = small_card()
    model.save(tmp_path / "card.json")
    first, second = shapes_of(model), shapes_of(PrivateHalfspaceClassifier.load(tmp_path / "card.json"))
    for one, other in zip(first.shapes, second.shapes, strict=True):
        assert one.band == pytest.approx(other.band)
    before = json.loads((tmp_path / "card.json").read_text())
    del before["linear_model"]["deviations"]
    without = shapes_of(PrivateHalfspaceClassifier.from_dict(before))
    assert all(shape.band is None for shape in without.shapes)
    assert "spread of the private linear model" in without.notes[0]
    for wrong in ([1.0], [-1.0] * 11):
        before["linear_model"]["deviations"] = wrong
        with pytest.raises(InvalidInputError, match="no deviation >= 0"):
            PrivateHalfspaceClassifier.from_dict(before)


def test_cards_that_a_mechanism_drew_itself_say_that_they_have_no_band() -> None:
    few = Schema([Categorical("ward", ["A", "B"])], intercept=True)
    model = PrivateHalfspaceClassifier(
        1.0, schema=few, classes=(0, 1), mechanism="exponential", insecure_seed=1
    ).fit(ADULTS, (ADULTS["ward"] == "B").astype(int))
    found = shapes_of(model)
    assert found.notes[0] == (
        "No band: the mechanism exponential drew the card itself, with no model behind it."
    )
    assert all(shape.band is None for shape in found.shapes)


def test_a_card_and_a_tree_have_the_shapes_of_the_card() -> None:
    model = PrivateAdditiveTreeClassifier(0.6, schema=SCHEMA, classes=(0, 1), max_depth=1, insecure_seed=3)
    model.fit(PEOPLE, (PAID > 0).astype(int))
    found, card = shapes_of(model), shapes_of(model.scorecard_model_)
    for one, other in zip(found.shapes, card.shapes, strict=True):
        assert np.array_equal(one.values, other.values)
        assert one.band is not None
    assert found.notes[-1].startswith("The tree adds or subtracts ")


def test_points_of_several_classes_are_series() -> None:
    model = CARD(classes=(0, 1, 2)).fit(PEOPLE, PAID)
    card, found = model.card_, shapes_of(model)
    columns = {column.shown: column for column in card.columns}
    assert "of several classes is not known" in found.notes[0]
    assert found.series == card.names
    for shape in found.shapes:
        rows = [points for _, points in columns[shape.title].rows]
        assert shape.values[3 * shape.is_line :].tolist() == [list(map(float, points)) for points in rows]


PLAIN = Schema([Numeric("age", 20, 80), Categorical("ward", ["A", "B"])])
ADULTS = pd.DataFrame({"age": rng.integers(20, 81, 4000), "ward": rng.choice(["A", "B"], 4000)})


def plain_regression() -> PrivateLinearRegression:
    model = PrivateLinearRegression(3.0, schema=PLAIN, label_range=(0, 100), insecure_seed=2)
    return model.fit(ADULTS, 0.4 * ADULTS["age"] + 9 * (ADULTS["ward"] == "B"))


def test_the_band_is_the_reach_of_the_noise_alone() -> None:
    """Noise of the stated scales, drawn afresh on the released moments, moves the estimate by its spread."""
    model = plain_regression()
    assert model.inference_ is not None
    moments = model.inference_.moments
    A, b, draws = moments.features, moments.products, np.random.default_rng(3)
    weights = []
    for _ in range(4000):
        noise = np.triu(draws.normal(size=A.shape), 1) / 2**0.5
        noise = noise + noise.T + np.diag(draws.normal(size=len(A)))
        noise[-1, -1] = 0.0  # the square of the constant is public
        moved = b + moments.sigma / moments.label_weight * draws.normal(size=len(b))
        weights.append(np.linalg.solve(A + moments.sigma * noise, moved)[:2])
    # Of age and of ward B against A. The feature of age goes from 0 to 1, its ends are half of it from the
    # middle, and both wards are half of their difference from their mean. A standard deviation of 4000 draws
    # is off by 1.1% (standard error), and the bounds of Fieller by a few percent more.
    age, ward = 1.96 * np.std(weights, axis=0) / 2
    bands = {shape.title: shape.band for shape in shapes_of(model).shapes}
    assert np.ptp(bands["age"], axis=1) / 2 == pytest.approx([age, 0, age], rel=0.08)
    assert np.ptp(bands["ward"], axis=1) / 2 == pytest.approx([ward, ward], rel=0.08)
    assert model.spend_.epsilon == 3


def test_bands_are_of_combinations_of_coefficients() -> None:
    # By hand: a level less the mean of the levels, of which a reference has no coefficient; where age is
    # missing its feature is 0, as at 20, and the middle is 50.
    model, ward = FITTED["regression"](), {"ward=A": -1 / 3, "ward=B": 2 / 3}
    by_hand: dict[tuple[str, int], dict[str, float]] = {
        ("Age at entry", 2): {"age": 30},
        ("Age at entry", 3): {"age": -30, "age is missing": 1},
        ("bmi", 0): {"bmi in [25, 30)": -1 / 3, "bmi in [30, 45]": -1 / 3},
        ("bmi", 2): {"bmi in [25, 30)": -1 / 3, "bmi in [30, 45]": 2 / 3},
        ("ward", 1): ward,
        ("ward", 2): {"ward=A": -1 / 3, "ward=B": -1 / 3},
        ("income", 2): {"income=$3": -1 / 3, "income is missing": 2 / 3},
    }
    bands = {shape.title: shape.band for shape in shapes_of(model).shapes}
    for (title, level), weights in by_hand.items():
        band, one = bands[title], model.combination(weights)
        assert band is not None
        assert np.ptp(band[level]) == pytest.approx(one.noise_share**0.5 * (one.high - one.low))
        assert band[level, 0] < one.estimate < band[level, 1]


def test_log_odds_have_a_band_where_the_noise_leaves_intervals() -> None:
    ill = np.random.default_rng(4).random(len(ADULTS)) < 1 / (1 + np.exp(3 - 0.06 * ADULTS["age"]))
    model = PrivateLogisticRegression(
        3.0, schema=PLAIN, classes=(False, True), mechanism="objective-perturbation-hessian", insecure_seed=1
    ).fit(ADULTS, ill)
    found, one = shapes_of(model), model.combination({"age": 30})  # the upper end against the middle
    band = next(shape.band for shape in found.shapes if shape.title == "age")
    assert found.unit == "contribution to the log odds of True against False"
    assert band is not None
    assert np.ptp(band[2]) == pytest.approx(one.noise_share**0.5 * (one.high - one.low))
    for name, reason in (("logistic", "the noise hides the model"), ("descent", "is not known")):
        without = shapes_of(FITTED[name]())
        assert all(shape.band is None for shape in without.shapes)
        assert reason in without.notes[1]


def test_saved_models_have_the_same_shapes_and_columns_without_weights_are_named(tmp_path: Path) -> None:
    model = plain_regression()
    model.save(tmp_path / "model.json")
    first, second = shapes_of(model), shapes_of(PrivateLinearRegression.load(tmp_path / "model.json"))
    assert first.description == second.description
    for one, other in zip(first.shapes, second.shapes, strict=True):
        assert np.array_equal(one.values, other.values)
        assert one.band == pytest.approx(other.band)
    model.coef_ = model.coef_ * [1, 0, 0]
    assert "No contribution: ward." in shapes_of(model).notes


def test_the_picture_fits_a_phone_and_names_levels_band_and_classes() -> None:
    for fitted, words in ((plain_regression(), "noise for privacy"), (FITTED["three classes"](), "2")):
        figure = shape_plot(fitted)
        assert figure.get_size_inches()[0] * 96 <= 390
        assert words in [text.get_text() for text in figure.legends[0].get_texts()]
        found: Shapes = shapes_of(fitted)
        assert [axes.get_title(loc="left") for axes in figure.axes] == [s.title for s in found.shapes]
        assert figure.get_label() == found.description


@pytest.mark.parametrize("name", ["shapes.svg", "shapes.png"])
def test_the_command_draws_saved_models_and_cards(
    privopt: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    FITTED["regression"]().save("model.json")
    CARD(classes=(0, 1)).fit(PEOPLE, (PAID > 0).astype(int)).save("card.json")
    for saved in ("model.json", "card.json"):
        run = privopt("shapes", saved, "--output", name)
        assert run.returncode == 0, run.stderr
        drawn = Path(name).read_bytes()
        assert drawn[:4] == (b"\x89PNG" if name.endswith("png") else b"<?xm")
        if name.endswith("svg"):
            assert "by column, the widest spread first: " in drawn.decode().split("</title>")[0]
            if saved == "model.json":
                assert "$1-$2" in drawn.decode()  # a level, not a formula


def test_it_says_what_has_no_shapes(
    privopt: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bare = PrivateLinearRegression(1.0, data_norm=2.0, label_range=(0, 1), insecure_seed=1)
    bare.fit(rng.uniform(-1, 1, (500, 2)), rng.random(500)).save("bare.json")
    tree = PrivateTreeClassifier(1.0, schema=PLAIN, classes=(0, 1), max_depth=1, insecure_seed=1)
    tree.fit(ADULTS, (ADULTS["ward"] == "B").astype(int)).save("tree.json")
    for words, text in (
        (("bare.json",), "fitted without a schema"),
        (("tree.json",), "holds a tree or a rule list"),
        (("bare.json", "--output", "shapes.txt"), "must end in .svg"),
    ):
        run = privopt("shapes", *words)
        assert run.returncode == 2
        assert text in " ".join(run.stderr.split())
    with pytest.raises(InvalidInputError, match="linear models and scorecards"):
        shapes_of(tree)
    nothing = plain_regression()
    nothing.coef_ = np.zeros(3)
    with pytest.raises(InvalidInputError, match="nothing to draw"):
        shapes_of(nothing)


def test_without_matplotlib_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("privopt.experiments.workbench.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"a figure needs matplotlib.*privopt\[plots\]"):
        import privopt.experiments.workbench.shape_plot  # noqa: F401

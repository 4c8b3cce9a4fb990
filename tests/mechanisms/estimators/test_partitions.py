"""Tables in parts: Dask collections and memory-mapped files give what the same table in memory gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from scipy import sparse

from privopt.mechanisms import (
    PrivateHalfspaceClassifier,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateRobustRegression,
    evaluate,
)
from privopt.mechanisms.privacy.gradient_noise import VectorNoise
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Binned, Categorical, Numeric, Schema
from privopt.problems.convex.risk import EmpiricalRisk
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning
from privopt.problems.parts import Blocks
from privopt.problems.tables.partitions import LostPartsError, parts_of

dask = pytest.importorskip("dask", reason="Dask is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N = 2000
FACTS: dict[str, Any] = {"data_norm": 1.0, "classes": (0, 1), "insecure_seed": 3}
BY_SUMS = ("dp-gd", "dp-accmd", "objective-perturbation", "sufficient-statistics")


def arrays(seed: int = 0) -> tuple[Any, Any]:
    """Records of which a fifth is longer than the declared norm."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 4)) / 3 * rng.choice([1, 1, 1, 1, 5], (N, 1))
    return X, (X[:, 0] + 0.1 * rng.normal(size=N) > 0).astype(int)


def lazy(X: Any, y: Any, rows: int = 300) -> tuple[Any, Any]:
    return da.from_array(X, chunks=(rows, 2)), da.from_array(y, chunks=rows)


def close(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a.coef_, b.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(a.intercept_, b.intercept_, rtol=0, atol=1e-9)
    assert a.spend_ == b.spend_
    assert a.n_features_in_ == b.n_features_in_


@pytest.fixture
def in_threads() -> Iterator[None]:
    with dask.config.set(scheduler="threads"):
        yield


@pytest.mark.usefixtures("in_threads")
class TestThreads:
    @pytest.mark.parametrize("mechanism", BY_SUMS)
    def test_a_fit_is_that_of_the_whole_table(self, mechanism: str) -> None:
        X, y = arrays()
        model = PrivateLogisticRegression(1.0, mechanism=mechanism, **FACTS)
        whole = model.fit(X, y)
        close(PrivateLogisticRegression(1.0, mechanism=mechanism, **FACTS).fit(*lazy(X, y)), whole)

    def test_three_classes_balanced_by_released_shares(self) -> None:
        X, y = arrays()
        y = y + (X[:, 1] > 0.3)
        facts = {**FACTS, "classes": (0, 1, 2), "class_weight": "balanced", "mechanism": "dp-gd", "steps": 5}
        dX, dy = lazy(X, y)
        dy = dy.rechunk(170)  # the labels follow the records
        close(
            PrivateLogisticRegression(1.0, **facts).fit(dX, dy),
            PrivateLogisticRegression(1.0, **facts).fit(X, y),
        )

    def test_regression(self) -> None:
        X, _ = arrays()
        y = 30 + 4 * X[:, 0]
        facts = {"data_norm": 1.0, "label_range": (20, 40), "insecure_seed": 1}
        model = PrivateLinearRegression(1.0, **facts).fit(*lazy(X, y))
        close(model, PrivateLinearRegression(1.0, **facts).fit(X, y))
        predicted = model.predict(lazy(X, y)[0])
        np.testing.assert_allclose(predicted.compute(), model.predict(X))
        assert model.score(*lazy(X, y)) == pytest.approx(model.score(X, y))

    def test_numbers_of_threads_and_partitions_of_one_layout_change_no_bit(self) -> None:
        X, y = arrays()
        fits = []
        for workers in (1, 3):
            with dask.config.set(num_workers=workers):
                model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=5, **FACTS)
                fits.append(model.fit(*lazy(X, y)).coef_.tolist())
        assert fits[0] == fits[1]

    def test_noise_is_drawn_once_a_step_however_many_partitions(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        drawn = []
        own = VectorNoise.adder

        def adder(self: VectorNoise, *args: Any) -> Any:
            add = own(self, *args)
            return lambda g: (drawn.append(1), add(g))[1]

        monkeypatch.setattr(VectorNoise, "adder", adder)
        PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=5, **FACTS).fit(*lazy(*arrays()))
        assert len(drawn) == 5

    def test_predictions_are_lazy_and_those_of_the_whole_table(self) -> None:
        X, y = arrays()
        dX, dy = lazy(X, y)
        model = PrivateLogisticRegression(1.0, **FACTS).fit(X, y)
        for name in ("predict", "decision_function", "predict_proba"):
            found, expected = getattr(model, name)(dX), getattr(model, name)(X)
            assert isinstance(found, da.Array)
            assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
            np.testing.assert_allclose(found.compute(), expected, rtol=1e-12)
        assert model.score(dX, dy) == model.score(X, y)

    @pytest.mark.parametrize("norm", ["l2", "linf"])
    @pytest.mark.parametrize("mechanism", ["dp-gd", "sufficient-statistics"])
    def test_sparse_partitions_of_unknown_lengths_are_the_matrix_in_memory(
        self, mechanism: str, norm: str
    ) -> None:
        X, y = arrays()
        X[np.abs(X) < 0.2] = 0
        whole, (dX, dy) = sparse.csr_matrix(X), lazy(X, y)
        facts: dict[str, Any] = {**FACTS, "norm": norm, "mechanism": mechanism}
        if mechanism == "dp-gd":
            facts["steps"] = 4
        model = PrivateLogisticRegression(1.0, **facts).fit(whole, y)
        dense = PrivateLogisticRegression(1.0, **facts).fit(dX, dy)
        close(dense, model)
        for kind in (sparse.csr_matrix, sparse.coo_array):
            thin = dX.rechunk((300, 4)).map_blocks(kind, dtype=float)
            thin._chunks = ((np.nan,) * len(thin.chunks[0]), thin.chunks[1])
            close(PrivateLogisticRegression(1.0, **facts).fit(thin, dy), model)
        predicted = model.predict(thin)
        assert np.isnan(predicted.shape[0])
        assert predicted.compute().tolist() == model.predict(whole).tolist()
        assert model.score(thin, dy) == model.score(whole, y)
        found = evaluate(model, thin, dy, insecure_seed=5)
        expected = evaluate(model, whole, y, insecure_seed=5)
        assert found.histogram.counts.tolist() == expected.histogram.counts.tolist()

    def test_sparse_partitions_are_refused_where_sparse_matrices_are(self) -> None:
        dX, dy = lazy(*arrays())
        thin = dX.map_blocks(sparse.csr_array, dtype=float)
        schema = Schema([Numeric(f"x{k}", -1, 1) for k in range(4)])
        for made in (PrivateHalfspaceClassifier, PrivateLogisticRegression):
            with pytest.raises(InvalidInputError, match="got csr_array"):
                made(1.0, schema=schema, classes=(0, 1)).fit(thin, dy)
        thin = dX.rechunk((300, 4)).map_blocks(lambda x: sparse.csr_array(x * np.nan), dtype=float)
        with pytest.raises(InvalidInputError, match=r"NaN|infin"):
            PrivateLogisticRegression(1.0, **FACTS).fit(thin, dy)
        narrow = dX.rechunk(
            (300, 4)
        ).map_blocks(  # the last of 7 partitions lacks a column
            lambda x: sparse.csr_array(x[:, 1:] if len(x) < 300 else x), dtype=float
        )
        with pytest.raises(InvalidInputError, match="partitions differ in their columns"):
            PrivateLogisticRegression(1.0, **FACTS).fit(narrow, dy)

    def test_an_evaluation_counts_every_record_once(self) -> None:
        X, y = arrays()
        model = PrivateLogisticRegression(1.0, **FACTS).fit(X, y)
        found = evaluate(model, *lazy(X, y), epsilon=1.0, insecure_seed=5)
        expected = evaluate(model, X, y, epsilon=1.0, insecure_seed=5)
        assert found.histogram.counts.tolist() == expected.histogram.counts.tolist()

    def test_what_cannot_be_taken_is_refused_before_anything_is_spent(self, tmp_path: Path) -> None:
        X, y = arrays()
        dX, dy = lazy(X, y)
        book = tmp_path / "ledger.json"
        Ledger.create(book, epsilon=3.0, delta=1e-3)
        facts = {**FACTS, "ledger": book}
        for options, data, text in (
            ({"mechanism": "dp-sgd"}, (dX, dy), "dp-sgd picks records one by one.*dp-gd"),
            ({"mechanism": "dp-svrg"}, (dX, dy), "dp-svrg picks records"),
            ({"classes": None}, (dX, dy), "declare classes"),
            ({"data_norm": None}, (dX, dy), "declare schema or data_norm"),
            ({}, (dX, y), "both be Dask"),
            ({}, (dX, dy[:-1]), "2000 rows and y has 1999"),
            ({}, (dX[:0], dy[:0]), "no records"),
            ({}, (dask.delayed(0), dy), "Dask arrays and data frames"),
        ):
            with pytest.raises(InvalidInputError, match=text):
                PrivateLogisticRegression(1.0, **{**facts, **options}).fit(*data)
        with pytest.raises(InvalidInputError, match=r"compute\(\)"):
            PrivateRobustRegression(1.0).fit(dX, dy)
        assert not Ledger(book).entries()

    @pytest.mark.parametrize("cell", [np.nan, np.inf, 1e200])
    def test_refusals_of_a_partition_quote_no_cell(
        self, cell: float, capfd: pytest.CaptureFixture[str]
    ) -> None:
        X, y = arrays()
        X[1234, 1], X[1234, 2] = cell, 0.918273
        with pytest.raises(InvalidInputError) as caught:
            PrivateLogisticRegression(1.0, **FACTS).fit(*lazy(X, y))
        told = str(caught.value) + "".join(capfd.readouterr())
        assert "0.918" not in told
        assert "1e+200" not in told


def frame() -> tuple[Schema, pd.DataFrame, pd.Series[Any]]:
    rng = np.random.default_rng(1)
    table = pd.DataFrame({
        "age": rng.integers(18, 90, N),
        "dose": rng.normal(5, 2, N).round(1),
        "smoker": rng.choice(["no", "yes"], N),
    })  # fmt: skip
    ill = table.age / 90 + 0.5 * (table.smoker == "yes") + rng.normal(0, 0.2, N) > 0.9
    schema = Schema(
        [Numeric("age", 18, 90), Binned("dose", (0, 3, 5, 7, 10)), Categorical("smoker", ["no", "yes"])],
        intercept=True,
    )
    return schema, table, pd.Series(np.where(ill, "ill", "well"), name="state")


def frames(table: pd.DataFrame, y: pd.Series[Any]) -> tuple[Any, Any]:
    """Five partitions, of which one is empty."""
    whole = dd.from_pandas(pd.concat([table, y], axis=1), npartitions=5)
    empty = whole.partitions[2].query("age > 1000")
    whole = dd.concat([whole.partitions[:2], empty, whole.partitions[2:]])
    return whole[list(table.columns)], whole["state"]


@pytest.mark.usefixtures("in_threads")
class TestFrames:
    def test_a_schema_encodes_every_partition(self) -> None:
        schema, table, y = frame()
        facts: dict[str, Any] = {"schema": schema, "classes": ("well", "ill"), "insecure_seed": 2}
        facts |= {"mechanism": "sufficient-statistics"}
        dX, dy = frames(table, y)
        model = PrivateLogisticRegression(1.0, **facts).fit(dX, dy)
        close(model, PrivateLogisticRegression(1.0, **facts).fit(table, y))
        assert model.predict(dX).compute().tolist() == model.predict(table).tolist()
        for name in ("decision_function", "predict_proba"):
            np.testing.assert_allclose(getattr(model, name)(dX).compute(), getattr(model, name)(table))
        assert model.score(dX, dy) == model.score(table, y)
        found = evaluate(model, dX, dy, insecure_seed=5)
        assert found.histogram.counts.tolist() == (
            evaluate(model, table, y, insecure_seed=5).histogram.counts.tolist()
        )

    def test_columns_of_one_frame_keep_its_partitions_whatever_dask_would_read_together(
        self, tmp_path: Path
    ) -> None:
        """Small Parquet files: of fewer columns more are read as one partition."""
        schema, table, y = frame()
        for k in range(3):
            pd.concat([table, y], axis=1)[k::3].assign(more=k).to_parquet(tmp_path / f"{k}.parquet")
        whole = dd.read_parquet(tmp_path)
        parts = parts_of(whole, whole["state"], list(table.columns))
        assert parts is not None
        held = [list(X.columns) for X, _ in parts.each(lambda pair: pair)]
        assert held == [list(table.columns)] * 3
        facts: dict[str, Any] = {"schema": schema, "classes": ("well", "ill"), "insecure_seed": 2}
        model = PrivateLogisticRegression(1.0, mechanism="sufficient-statistics", **facts)
        close(
            PrivateLogisticRegression(1.0, mechanism="sufficient-statistics", **facts).fit(table, y),
            model.fit(whole.drop(columns="state"), whole["state"]),
        )

    def test_a_scorecard_counts_partitions(self) -> None:
        schema, table, y = frame()
        facts: dict[str, Any] = {
            "schema": schema,
            "classes": ("well", "ill"),
            "insecure_seed": 2,
            "mechanism": "seeded",
        }
        dX, dy = frames(table, y)
        model = PrivateHalfspaceClassifier(1.0, **facts).fit(dX, dy)
        assert model.coef_.tolist() == PrivateHalfspaceClassifier(1.0, **facts).fit(table, y).coef_.tolist()
        assert model.predict(dX).compute().tolist() == model.predict(table).tolist()
        with pytest.raises(InvalidInputError, match="declared schema"):
            PrivateHalfspaceClassifier(1.0).fit(dX, dy)

    def test_cells_and_labels_of_another_kind_are_refused_without_a_word_of_them(self) -> None:
        schema, table, y = frame()
        facts: dict[str, Any] = {"schema": schema, "classes": ("well", "ill")}
        for column, cell in (("smoker", "sekret"), ("age", "sekret"), ("state", "sekret")):
            whole = pd.concat([table, y], axis=1).astype({column: object})
            whole.loc[N - 7, column] = cell
            parts = dd.from_pandas(whole, npartitions=3)
            with pytest.raises(InvalidInputError) as caught:
                PrivateLogisticRegression(1.0, **facts).fit(parts[list(table.columns)], parts["state"])
            assert "sekret" not in str(caught.value)

    def test_partitions_may_differ_in_types_and_dictionaries_as_tables_in_memory_may(self) -> None:
        schema, table, y = frame()
        facts: dict[str, Any] = {"schema": schema, "classes": ("well", "ill"), "insecure_seed": 2}
        kinds: list[tuple[Any, Any, str]] = [
            (object, "category", "int64"),
            ("string[pyarrow]", object, "Int64"),
            (pd.CategoricalDtype(["yes", "no"]), "string[pyarrow]", "float64"),
            ("string[python]", "category", "float32"),
            (pd.CategoricalDtype(["other", "no", "yes"]), "string[python]", "int8"),
        ]

        def another(part: Any, partition_info: Any = None) -> Any:
            smoker, state, age = kinds[(partition_info or {"number": 0})["number"]]
            return part.astype({"smoker": smoker, "state": state, "age": age})

        whole = dd.from_pandas(pd.concat([table, y], axis=1), npartitions=5)
        whole = whole.map_partitions(another, meta=whole._meta)
        data = whole[list(table.columns)], whole["state"]
        model = PrivateLogisticRegression(1.0, mechanism="sufficient-statistics", **facts)
        card = PrivateHalfspaceClassifier(1.0, mechanism="seeded", **facts)
        weights = [fitted.fit(table, y).coef_.tolist() for fitted in (model, card)]
        assert [fitted.fit(*data).coef_.tolist() for fitted in (model, card)] == weights
        assert card.predict(data[0]).compute().tolist() == card.predict(table).tolist()

    def test_labels_that_do_not_lie_beside_the_records_are_refused(self) -> None:
        schema, table, y = frame()
        X, facts = dd.from_pandas(table, npartitions=3), {"schema": schema, "classes": ("well", "ill")}
        for labels in (
            dd.from_pandas(y, npartitions=4),
            dd.from_pandas(y[:-9], npartitions=3),
            da.from_array(y.to_numpy(object), chunks=(666, 667, 667)),
        ):
            for made in (PrivateHalfspaceClassifier, PrivateLogisticRegression):
                with pytest.raises(InvalidInputError, match="same partitions"):
                    made(1.0, **facts).fit(X, labels)

    def test_what_fails_while_dask_reads_is_one_error_without_a_cell(self) -> None:
        schema, table, y = frame()

        def failing(part: Any) -> Any:
            raise ValueError("sekret")

        X = dd.from_pandas(table, npartitions=3).map_partitions(failing, meta=table[:0])
        with pytest.raises(LostPartsError, match=r"\(ValueError\)") as caught:
            PrivateLogisticRegression(1.0, schema=schema, classes=("well", "ill")).fit(
                X, dd.from_pandas(y, npartitions=3)
            )
        assert caught.value.__cause__ is caught.value.__context__ is None


# Fits, predicts and evaluates a file of 128 MB where 64 MB may be had, beyond what libraries took.
_LITTLE_MEMORY = """
import re, resource, sys
from pathlib import Path
import numpy as np
from privopt.mechanisms import PrivateLogisticRegression, evaluate

rows = 2_000_000
X = np.lib.format.open_memmap(sys.argv[1], "w+", np.float64, (rows, 8))  # holes: zeros, on no disk
y = np.zeros(rows, dtype=np.int8)
y[::3] = 1
facts = {"data_norm": 1.0, "classes": (0, 1), "mechanism": "dp-gd", "steps": 1, "insecure_seed": 1}

def run(X, y):
    model = PrivateLogisticRegression(1.0, **facts).fit(X, y)
    assert len(model.predict(X)) == int(np.sum(evaluate(model, X, y).histogram.n_records))

run(X[:1000], y[:1000])
taken = int(re.search(r"VmData:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
resource.setrlimit(resource.RLIMIT_DATA, (taken + (64 << 20),) * 2)
run(X, y)
try:
    np.array(X)
except MemoryError:
    sys.exit(0)
sys.exit("the limit does not hold")
"""


class TestFiles:
    @pytest.fixture
    def mapped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
        X, y = arrays()
        np.save(tmp_path / "X.npy", X)
        monkeypatch.setattr("privopt.problems.parts._BLOCK_BYTES", 7000)  # some 180 rows
        return np.load(tmp_path / "X.npy", mmap_mode="r"), y

    def test_a_mapped_file_is_read_in_blocks(
        self, mapped: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        largest = []
        own = Blocks._all

        def every(self: Blocks) -> Iterator[Any]:
            for part in own(self):
                largest.append(getattr(part, "features", np.empty(0)).size)
                yield part

        monkeypatch.setattr(Blocks, "_all", every)
        X, y = mapped
        model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=3, **FACTS).fit(X, y)
        assert 0 < max(largest) < 1000
        monkeypatch.undo()
        close(model, PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=3, **FACTS).fit(np.array(X), y))
        np.testing.assert_allclose(model.decision_function(X), model.decision_function(np.array(X)))

    @pytest.mark.parametrize("kind", ["float32", "int8", ">f8"])
    @pytest.mark.parametrize("columns_first", [False, True])
    def test_files_of_other_numbers_and_orders(self, kind: str, columns_first: bool, tmp_path: Path) -> None:
        X, y = arrays()
        X = (4 * X).astype(kind)
        np.save(tmp_path / "X.npy", np.asfortranarray(X) if columns_first else X)
        mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
        assert mapped.flags.c_contiguous is not columns_first
        model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=3, **FACTS).fit(mapped, y)
        whole = X.astype(float)
        close(model, PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=3, **FACTS).fit(whole, y))
        assert model.predict(mapped).tolist() == model.predict(whole).tolist()

    @pytest.mark.skipif(sys.platform != "linux", reason="limits of memory and /proc are Linux's")
    def test_a_file_twice_as_large_as_the_memory_that_is_left(self, tmp_path: Path) -> None:
        subprocess.run(
            [sys.executable, "-c", _LITTLE_MEMORY, str(tmp_path / "X.npy")],
            check=True,
            env={**os.environ, "NUMBA_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )

    def test_facts_that_are_not_declared_are_read_off_it_as_off_an_array(
        self, mapped: tuple[Any, Any]
    ) -> None:
        with pytest.warns(PrivacyLeakWarning, match="data_norm"):
            PrivateLogisticRegression(1.0, classes=(0, 1)).fit(*mapped)


def test_long_frames_are_counted_and_give_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    schema, table, y = frame()
    facts: dict[str, Any] = {"schema": schema, "classes": ("well", "ill"), "insecure_seed": 2}
    model = PrivateLogisticRegression(1.0, mechanism="dp-gd", **facts)
    plain = model.fit(table, y).coef_
    seen: list[int] = []
    own = EmpiricalRisk.__init__

    def counting(self: EmpiricalRisk, X: Any, *args: Any, **options: Any) -> None:
        seen.append(len(X))
        own(self, X, *args, **options)

    monkeypatch.setattr("privopt.mechanisms.estimators.counting._LONG", N)
    monkeypatch.setattr(EmpiricalRisk, "__init__", counting)
    of_arrow, labels = pyarrow.Table.from_pandas(pd.DataFrame(table)), pyarrow.chunked_array([list(y)])
    frames = [(table, y), (of_arrow, labels)]
    with suppress(ImportError):
        import polars

        frames.append((polars.from_arrow(of_arrow), polars.Series(list(y))))
    for X, given in frames:
        seen.clear()
        np.testing.assert_allclose(model.fit(X, given).coef_, plain, rtol=0, atol=1e-9)
        assert seen[0] < N
        assert (model.predict(X) == model.predict(table)).all()
    assert model.n_features_in_ == schema.n_features

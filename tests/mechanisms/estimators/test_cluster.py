"""A cluster of worker processes: workers and schedulers that die, what is logged."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

from privopt.mechanisms import PrivateLogisticRegression, evaluate
from privopt.mechanisms.estimators.booking import is_booked
from privopt.mechanisms.heavy_tails.sample_aggregate import SampleAggregate
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.partitions import DaskParts, LostPartsError
from tests.mechanisms.estimators.test_partitions import FACTS, arrays, close, lazy
from tests.mechanisms.heavy_tails.test_sample_aggregate import planned

distributed = pytest.importorskip("distributed", reason="distributed is not installed")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two worker processes, which are started again when they die."""
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as made,
        distributed.Client(made) as client,
    ):
        yield client


def acting(monkeypatch: pytest.MonkeyPatch, at: int, act: Any) -> list[int]:
    """``act`` while the parts answer for the ``at``-th time."""
    calls: list[int] = []
    own = DaskParts.each

    def each(self: DaskParts, task: Any) -> list[Any]:
        calls.append(len(self.pieces))
        if len(calls) == at:
            threading.Thread(target=act).start()
        return own(self, task)

    monkeypatch.setattr(DaskParts, "each", each)
    return calls


def test_what_a_worker_refuses_it_does_not_log(cluster: Any) -> None:
    X, y = arrays()
    X[1234, 1:3] = np.nan, 0.918273
    with pytest.raises(InvalidInputError, match="NaN"):
        PrivateLogisticRegression(1.0, **FACTS).fit(*lazy(X, y))
    logs = str(cluster.get_worker_logs())
    assert "Compute Failed" not in logs
    assert "0.918" not in logs


def test_predictions_and_evaluations(cluster: Any) -> None:
    X, y = arrays()
    dX, dy = lazy(X, y)
    model = PrivateLogisticRegression(1.0, mechanism="sufficient-statistics", **FACTS).fit(dX, dy)
    assert model.predict(dX).compute().tolist() == model.predict(X).tolist()
    found = evaluate(model, dX, dy, insecure_seed=5)
    expected = evaluate(model, X, y, insecure_seed=5)
    assert found.histogram.counts.tolist() == expected.histogram.counts.tolist()


def test_joblib_spreads_fits_over_the_workers(cluster: Any) -> None:
    X, y = arrays()

    def fitted(seed: int) -> Any:
        model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=3, **{**FACTS, "insecure_seed": seed})
        return model.fit(X, y).coef_.tolist()

    with joblib.parallel_config(backend="dask"):
        found = joblib.Parallel()(joblib.delayed(fitted)(seed) for seed in range(3))
    assert found == [fitted(seed) for seed in range(3)]


def test_joblib_sends_subsets_of_records_to_the_workers(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    plan = dataclasses.replace(planned(), n_records=12, subsets=4, averaged=2)
    monkeypatch.setattr(SampleAggregate, "shortened", lambda self, z: (seen.append(z), z)[1])
    with joblib.parallel_config(backend="dask"):
        plan.release(
            np.zeros((12, 1)), np.zeros(12), lambda rows, labels: np.array([float(os.getpid())]), workers=2
        )
    assert set(seen[0].ravel()) <= set(map(float, cluster.run(os.getpid).values()))


def test_a_killed_worker_costs_its_partitions_and_changes_no_bit(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = arrays()
    model = PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=12, **FACTS)
    undisturbed = model.fit(*lazy(X, y)).coef_.tolist()
    close(model, PrivateLogisticRegression(1.0, mechanism="dp-gd", steps=12, **FACTS).fit(X, y))
    victim = next(iter(cluster.run(os.getpid).values()))
    calls = acting(monkeypatch, 6, lambda: os.kill(victim, signal.SIGKILL))
    assert model.fit(*lazy(X, y)).coef_.tolist() == undisturbed
    assert calls == [7] * 13  # the facts, and then once a step: nothing is asked for twice
    assert victim not in cluster.run(os.getpid).values()


def test_without_a_scheduler_there_is_one_error_and_the_budget_stays_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = tmp_path / "scheduler.json"
    start = [sys.executable, "-m", "distributed.cli.dask_"]
    options = ["--scheduler-file", str(where), "--no-dashboard"]
    commands = [
        ["scheduler", "--port", "0", *options],
        ["worker", *options, "--nthreads", "1", "--no-nanny", "--memory-limit", "0"],
    ]
    processes = [
        subprocess.Popen([*start[:2], start[2] + c[0], *c[1:]], stderr=subprocess.DEVNULL, cwd=tmp_path)
        for c in commands
    ]
    try:
        for _ in range(300):
            if where.exists():
                break
            time.sleep(0.1)
        book = tmp_path / "ledger.json"
        Ledger.create(book, epsilon=3.0, delta=1e-3)
        with distributed.Client(scheduler_file=str(where), set_as_default=True) as client:
            client.wait_for_workers(1, timeout=30)
            acting(monkeypatch, 4, processes[0].kill)
            model = PrivateLogisticRegression(
                1.0, mechanism="dp-gd", steps=12, ledger=book, **{**FACTS, "insecure_seed": None}
            )
            with pytest.raises(LostPartsError, match="Nothing was released") as caught:
                model.fit(*lazy(*arrays()))
            assert any("counts as spent" in note for note in caught.value.__notes__)
        assert len(Ledger(book).entries()) == 1
        assert not hasattr(model, "coef_")
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_cluster_without_workers_is_waited_for_as_long_as_the_warning_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privopt.problems.tables.partitions._LOOK", 0.1)
    monkeypatch.setattr("privopt.problems.tables.partitions._PATIENCE", 0.5)
    X, y = lazy(*arrays())
    book = Ledger.create(tmp_path / "ledger.json", epsilon=3.0, delta=1e-3)
    with (
        distributed.LocalCluster(n_workers=0, processes=False, dashboard_address=None) as empty,
        distributed.Client(empty),
        pytest.warns(UserWarning, match=r"no workers: waiting up to 0\.5 seconds"),
        pytest.raises(LostPartsError, match=r"no workers for 0\.5 seconds") as caught,
    ):
        PrivateLogisticRegression(1.0, ledger=book, **{**FACTS, "insecure_seed": None}).fit(X, y)
    assert is_booked(caught.value)
    assert len(book.entries()) == 1

"""``privopt schema learn``, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner, Result

from privopt.experiments.cli import schema as module
from privopt.experiments.cli.main import app
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.schemas.learning import LearnedSchema
from privopt.problems import Binned, Categorical, MissingLevel, Numeric, Schema
from privopt.problems.errors import InvalidInputError


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, folder, n = np.random.default_rng(0), tmp_path_factory.mktemp("clinic"), 3000
    frame = pd.DataFrame({"age": rng.integers(18, 95, n), "smoker": rng.choice(["no", "yes"], n)})
    frame["state"] = rng.choice(["well", "ill"], n)
    frame.to_csv(folder / "t.csv", index=False)
    frame.to_parquet(folder / "t.parquet")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(app, ["schema", *map(str, words)], catch_exceptions=False)


LEARN = ("--epsilon", 2, "--target", "state")


@pytest.mark.parametrize("data", ["t.csv", "t.parquet"])
def test_learn_books_saves_and_reports(clinic: Path, tmp_path: Path, data: str) -> None:
    Ledger.create(tmp_path / "ledger", 3.0, 1e-3)
    more = ("--ledger", tmp_path / "ledger", "--save", tmp_path / "s.toml", "--json", tmp_path / "r.json")
    done = run("learn", clinic / data, *LEARN, *more)
    assert done.exit_code == 0
    schema = Schema.load(tmp_path / "s.toml")
    age, smoker = schema.columns
    assert isinstance(age, MissingLevel)
    assert isinstance(age.column, Binned)
    assert smoker.levels == ("no", "yes", "missing")
    report = json.loads((tmp_path / "r.json").read_text())
    assert Schema.from_dict(report["schema"]) == schema
    assert (report["mechanism"], report["epsilon"]) == ("learn-schema", 2.0)
    # Parquet declares whole numbers; a CSV file declares nothing, so its types are voted on, and paid for.
    kinds = [column["type"] for column in report["columns"]]
    assert kinds == (["vote", "vote"] if data == "t.csv" else ["whole", "text"])
    assert [e.spend.epsilon for e in Ledger(tmp_path / "ledger").entries()] == [2.0]
    with pytest.raises(BudgetExceededError):
        run("learn", clinic / data, *LEARN, "--ledger", tmp_path / "ledger")


@pytest.mark.parametrize(
    ("edges", "doubtful"),
    [
        ((0, 10**10, 9 * 10**13, 18 * 10**13), True),
        ((-1e24, 0, 1e24, 1.6e27), True),
        ((0, 80, 4000, 250_000, 10**7), False),  # incomes, or loans
        ((10**9, 10**9 + 5, 2 * 10**9), False),  # numbers of accounts
        ((0, "0.001", 6, 7), False),
    ],
)
def test_cuts_that_only_noise_can_have_made_are_named(edges, doubtful, monkeypatch) -> None:
    """What is said follows from the released schema alone."""
    told: list[str] = []
    monkeypatch.setattr(module.say, "print", lambda text, **_: told.append(text))
    schema = Schema([MissingLevel(Binned("odd", edges)), Binned("age", [0, 40, 100])])
    found = LearnedSchema(schema, PrivacySpend.pure(1.0, "learn-schema"), ())
    module._show(found, Path("s.toml"), 4500, None)
    assert any("look like noise" in line and "odd" in line for line in told) == doubtful
    assert not any("age" in line for line in told)
    assert "learned from 4,500 records" in told
    told.clear()
    module._show(found, Path("s.toml"), 4500, schema)  # declared
    assert not any("noise" in line for line in told)


def test_a_plan_reads_types_and_books_nothing(clinic: Path, tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "ledger", 3.0, 1e-3)
    shown = run(
        "learn", clinic / "t.csv", *LEARN, "--plan", "--types", "age=whole", "--ledger", tmp_path / "ledger"
    )
    assert "age: 7 cuts" in shown.stdout
    assert "smoker: type by vote" in shown.stdout
    assert "affords it; nothing was booked" in shown.stdout
    assert len(book.entries()) == 0


def test_without_save_the_schema_is_printed(clinic: Path, tmp_path: Path) -> None:
    seed = ("--insecure-seed", 1)
    first, again = (run("learn", clinic / "t.csv", *LEARN, *seed).stdout for _ in range(2))
    assert first == again
    (tmp_path / "s.toml").write_text(first)
    assert [c.name for c in Schema.load(tmp_path / "s.toml").columns] == ["age", "smoker"]


def test_what_is_known_is_declared(clinic: Path, tmp_path: Path) -> None:
    (tmp_path / "known.toml").write_text('[[columns]]\nkind = "numeric"\nname = "age"\nlow = 0\nhigh = 100\n')
    shown = run("learn", clinic / "t.csv", *LEARN, "--schema", tmp_path / "known.toml", "--plan")
    assert "age: declared, free" in shown.stdout


def test_skeletons_are_written_as_before(clinic: Path) -> None:
    for words in ((clinic / "t.csv", "--target", "state"), ("--target", "state", clinic / "t.csv")):
        assert run(*words).stdout == run("skeleton", *words).stdout
        assert 'name = "age", kind = ""' in run(*words).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("t.csv", "--types", "age"), "NAME=TYPE"),
        (("t.csv", "--types", "age=int"), "type must be one of"),
        (("t.csv", "--leave-out", "height"), "missing from the table"),
        (("t.csv", "--save", "schema.txt"), "must end in .toml or .json"),
        (("duckdb://t.db",), "needs its name: --table"),
        (("t.csv", "--table", "t"), "--table names a table of a database"),
        (("none.csv",), "no such file"),
    ],
)
def test_what_cannot_be_learned_is_refused(
    clinic: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(clinic)
    with pytest.raises(InvalidInputError, match=message):
        run("learn", *words, *LEARN)


@pytest.mark.parametrize("data", ["t.csv", "t.parquet"])
def test_a_model_and_its_schema_are_fitted_and_booked_in_one_go(
    clinic: Path, tmp_path: Path, data: str
) -> None:
    book = Ledger.create(tmp_path / "ledger", 3.0, 1e-3)
    words = ["fit", "--data", clinic / data, "--target", "state", "--epsilon", 2, "--learn-schema", 0.2]
    words += ["--model", "linear", "--mechanism", "output-perturbation", "--ledger", tmp_path / "ledger"]
    saved, classes = tmp_path / "m.json", ["--classes", "ill,well"]
    with pytest.raises(InvalidInputError, match="classes"):
        invoked(*words)
    assert book.entries() == []
    invoked(*words, *classes, "--save", saved)
    (entry,) = book.entries()
    assert (entry.spend.epsilon, entry.spend.mechanism) == (2.0, "learn-schema, output-perturbation")
    model = json.loads(saved.read_text())
    assert model["spend"]["epsilon"] == 2.0
    assert [column["name"] for column in model["schema"]["columns"]] == ["age", "smoker"]
    said = invoked("predict", saved, clinic / data).stdout
    assert len(said.splitlines()) == 3001


def invoked(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)), catch_exceptions=False)


def test_declared_types_are_those_of_a_schema_that_is_fitted_with(clinic: Path, tmp_path: Path) -> None:
    """A declared type is not voted on, so whole numbers have whole cuts; labels of known columns stay."""
    (tmp_path / "known.toml").write_text(
        '[[columns]]\nkind = "categorical"\nname = "smoker"\ncategories = ["no", "yes"]\nlabel = "Smoker"\n'
    )
    words = ["fit", "--data", clinic / "t.csv", "--target", "state", "--epsilon", 2, "--classes", "ill,well"]
    words += ["--model", "linear", "--mechanism", "output-perturbation", "--types", "age=whole"]
    with pytest.raises(InvalidInputError, match="--types belongs to --learn-schema"):
        invoked(*words)
    with pytest.raises(InvalidInputError, match="type must be one of"):
        invoked(*words[:-1], "age=int", "--learn-schema", 0.2)
    invoked(*words, "--learn-schema", 0.2, "--schema", tmp_path / "known.toml", "--save", tmp_path / "m.json")
    age, smoker = json.loads((tmp_path / "m.json").read_text())["schema"]["columns"]
    assert all(isinstance(edge, int) for edge in age["edges"])
    assert smoker["label"] == "Smoker"


def test_a_schema_is_checked_on_public_rows_alone(clinic: Path, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('[[columns]]\nkind = "binned"\nname = "age"\nedges = [0, 50, 120]\n')
    with pytest.raises(InvalidInputError, match="add --public if they are public or synthetic"):
        run("check", tmp_path / "s.toml", clinic / "t.csv")
    shown = run("check", tmp_path / "s.toml", clinic / "t.csv", "--public").stdout
    assert "age: 0 missing, 0 unreadable (refused); 0 outside (clipped)" in shown
    assert "every row is accepted" in shown
    assert "1,000 rows, 2 features" in run("check", tmp_path / "s.toml").stdout


def test_a_schema_file_is_written_again_with_numbers_in_bins(tmp_path: Path) -> None:
    given = Schema([Numeric("age", 17, 90), Categorical("smoker", ["no", "yes"])], intercept=True)
    given.save(tmp_path / "s.toml")
    assert run("bins", tmp_path / "s.toml").stdout == given.with_bins().to_text()
    assert run("bins", tmp_path / "s.toml", "--output", tmp_path / "b.toml").stdout == ""
    assert Schema.load(tmp_path / "b.toml") == given.with_bins()
    with pytest.raises(InvalidInputError, match=r"must end in \.toml"):
        run("bins", tmp_path / "s.toml", "--output", tmp_path / "b.json")

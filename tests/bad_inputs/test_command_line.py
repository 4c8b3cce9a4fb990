"""Bad input on the command line: one clear line, the right exit code, and no file written or replaced.

To add a case: a line to ``CASES``, the words after ``privopt`` and a part of what is told. {FIT} and {LINEAR}
stand for fits that work, {EVALUATE} for an evaluation; a later option replaces an earlier one of its name.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

from privopt.experiments.cli.main import main
from privopt.mechanisms import PrivateHalfspaceClassifier, PrivateLogisticRegression
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems import Categorical, Numeric, Schema

SCHEMA = Schema([Numeric("age", 0, 100, step=10), Categorical("smoker", ["no", "yes"])], intercept=True)
FIT = "fit --data t.csv --target state --classes well,ill --schema s.toml --epsilon 1"
LINEAR = f"{FIT} --loss logistic"
EVALUATE = "evaluate card.json --data t.csv --target state --epsilon 1"
ROWS = "44,no,well\n61,yes,ill\n" * 5

FILES = {
    "empty.csv": "",
    "header.csv": "age,smoker,state\n",
    "noheader.csv": ROWS,
    "twice.csv": "age,age,smoker,state\n1,2,no,well\n",
    "short.csv": f"age,smoker,state\n{ROWS}44,no\n",
    "long.csv": f"age,smoker,state\n{ROWS}44,no,well,ill\n",
    "quote.csv": f'age,smoker,state\n{ROWS}44,"no,well\n',
    "hole.csv": f"age,smoker,state\n{ROWS},no,well\n",
    "nolabel.csv": f"age,smoker,state\n{ROWS}44,no,\n",
    "thousands.csv": f'age,smoker,state\n{ROWS}"1,200",no,well\n',
    "comma.csv": f'age,smoker,state\n{ROWS}"44,5",no,well\n',
    "units.csv": f"age,smoker,state\n{ROWS}44 years,no,well\n",
    "date.csv": f"age,smoker,state\n{ROWS}1982-01-30,no,well\n",
    "percent.csv": f"age,smoker,state\n{ROWS}44%,no,well\n",
    "unknown.csv": f"age,smoker,state\n{ROWS}44,perhaps,well\n",
    "label.csv": f"age,smoker,state\n{ROWS}44,no,fine\n",
    "upper.csv": f"Age,Smoker,State\n{ROWS}",
    "one.csv": "age,smoker,state\n44,no,well\n",
    "t.txt": "age,smoker,state\n44,no,well\n",
    "t.parquet": "not Parquet",
    "t.csv.gz": "not gzip",
    "bad.toml": "intercept = \n",
    "kind.toml": '[[columns]]\nkind = "number"\nname = "age"\n',
    "key.toml": '[[columns]]\nkind = "numeric"\nname = "age"\nlow = 0\nhigh = 1\nstp = 1\n',
    "bounds.toml": '[[columns]]\nkind = "numeric"\nname = "age"\nlow = 1\nhigh = 0\n',
    "list.json": "[1, 2]",
    "label.toml": '[[columns]]\nkind = "categorical"\nname = "state"\ncategories = ["well"]\n',
    "other.toml": '[[columns]]\nkind = "numeric"\nname = "weight"\nlow = 0\nhigh = 1\n',
    "torn.ledger": '{"privopt_ledger": 2, "neigh',
    "key.ledger": '{"privopt_ledger": 1, "neighbours": "replace-one", "epsilon": 1.0, "delta": 0.0, '
    '"rule": "basic", "more": 1}\n',
    "list.model": "[]",
}

# The words after `privopt`, and a part of what is told. {FIT} and {LINEAR} stand for what works.
CASES = """
fit | Missing option '--data'
fit --data t.csv | Missing option '--epsilon'
fit --data t.csv --epsilon 1 | --target is needed
fti --data t.csv | No such command 'fti'
{FIT} --epsilon 0 | epsilon must be finite and > 0
{FIT} --epsilon -1 | epsilon must be finite and > 0
{FIT} --epsilon nan | epsilon must be finite and > 0
{FIT} --epsilon inf | epsilon must be finite and > 0
{FIT} --epsilon one | Invalid value for '--epsilon'
{FIT} --mechanism opdisc --delta soon | --delta must be a number in (0, 1) or auto
{FIT} --mechanism opdisc --delta 1 | delta must satisfy
{FIT} --mechanism opdisc --delta -1 | delta must satisfy
{FIT} --mechanism opdisc --delta nan | delta must satisfy
{FIT} --mechanism exponential --delta 1e-6 | exponential is pure
{FIT} --mechanism magic | unknown mechanism 'magic'
{FIT} --mechanism OPDISC | did you mean 'opdisc'?
{FIT} --oracle magic | 'magic'
{FIT} --oracle pulp-highs | needs a sampler
{FIT} --calibration printed | seeded has the calibration(s) sound
{FIT} --lattice 1 | --lattice must be LOW:HIGH
{FIT} --lattice a:b | --lattice must be LOW:HIGH
{FIT} --lattice 1:2:3:4 | --lattice must be LOW:HIGH
{FIT} --lattice 0.5:1 | --lattice must be LOW:HIGH
{FIT} --lattice 1:-1 | LOW = 1 is above HIGH = -1
{FIT} --lattice=-1:1:-2 | radius must be >= 0
{FIT} --lattice=-1:1:nan | radius must be >= 0
{FIT} --lattice=-99999999999999999999:1 | 64-bit integers
{FIT} --time-limit 0 | time limit must be > 0
{FIT} --time-limit -1 | time limit must be > 0
{FIT} --time-limit nan | time limit must be > 0
{FIT} --insecure-seed -1 | insecure_seed must be >= 0
{FIT} --data-norm 1 | --data-norm belongs to linear models; name the model with --model
{FIT} --set l1:1 | --set: scorecards (the default) do not take it
{FIT} --steps 3 --norm linf | --steps, --norm: scorecards (the default) do not take them
{FIT} --regularizer l2:1 | --regularizer belongs to linear models
{FIT} --label-range 0:1 | --label-range belongs to linear models
{FIT} --mechanism opdisc --loss logistic | scorecards (mechanism opdisc) do not take it
{LINEAR} --lattice 0:1 | linear models (--loss) do not take it; --lattice belongs to scorecards
{LINEAR} --model linear --max-depth 2 | --max-depth belongs to decision trees and rule lists
{LINEAR} --model card | --loss: scorecards (--model card) do not take it
{FIT} --model linear --mechanism rspm | mechanism rspm: linear models (--model linear) take auto, dp-gd
{FIT} --model lineal | did you mean 'linear'?
{LINEAR} --oracle native | --oracle belongs to scorecards
{LINEAR} --loss magic | a loss is logistic
{LINEAR} --loss huber | a loss is logistic
{LINEAR} --loss huber:x | a loss is logistic
{LINEAR} --loss huber:1 | --classes belongs to classification
{LINEAR} --label-range 0:1 | --label-range belongs to regression
{LINEAR} --data-norm 0 | data_norm must be finite and > 0
{LINEAR} --data-norm nan | data_norm must be finite and > 0
{LINEAR} --data-norm x | Invalid value for '--data-norm'
{LINEAR} --norm l3 | --norm is l2 or linf
{LINEAR} --set l2 | a set is l1:SIZE
{LINEAR} --set l2:x | is not a number
{LINEAR} --set l2:0 | size must be finite and > 0
{LINEAR} --set l2:-1 | size must be finite and > 0
{LINEAR} --set cube:1 | a set is l1:SIZE
{LINEAR} --regularizer l2 | is not a number
{LINEAR} --regularizer l2:-1 | strengths must be finite and >= 0
{LINEAR} --regularizer l3:1 | a regularizer is none
{LINEAR} --mechanism magic | unknown mechanism 'magic'
{LINEAR} --mechanism dp-gd --steps 0 | steps must be a whole number >= 1
{LINEAR} --mechanism dp-gd --steps -5 | steps must be a whole number >= 1
{LINEAR} --mechanism dp-gd --steps 1.5 | Invalid value for '--steps'
{LINEAR} --mechanism dp-gd --steps 100000000000 | more than 10,000,000, which can run for days
{LINEAR} --mechanism objective-perturbation --steps 5 | has no option steps
{LINEAR} --delta 0 | delta must satisfy
{LINEAR} --robust --loss sigmoid | robust linear models take --loss logistic or squared
{LINEAR} --robust --loss squared | --classes belongs to classification
{LINEAR} --robust --data-norm 1 --set l2:1 | --set, --data-norm: robust linear models (--robust) do not
{LINEAR} --robust --mechanism dp-gd | robust linear models (--robust) take auto, clipped-newton
{LINEAR} --robust --lattice 0:1 | --lattice belongs to scorecards
{LINEAR} --robust --model linear | --robust belongs to robust linear models
{LINEAR} --mechanism clipped-newton --steps 0 | steps must be a whole number >= 1
{LINEAR} --robust --class-weight balanced | --class-weight: robust linear models (--robust) do not take it
{LINEAR} --time-limit 0 | time limit must be > 0
{FIT} --data no.csv | no such file
{FIT} --data . | that is a folder
{FIT} --data t.txt | tables end in .csv, .csv.gz or .parquet
{FIT} --data t.parquet | damaged, or not a Parquet file
{FIT} --data t.csv.gz | damaged, or not a gzip-compressed CSV file
{FIT} --data utf16.csv | not UTF-8 text
{FIT} --data latin.csv | not UTF-8 text
{FIT} --data empty.csv | the first line must hold the names of the columns
{FIT} --data header.csv | no records
{FIT} --data noheader.csv | is the first line of the file its header?
{FIT} --data twice.csv | columns 1 and 2 have the same name
{FIT} --data short.csv | line 12: 2 cells where the header has 3
{FIT} --data long.csv | line 12: 4 cells where the header has 3
{FIT} --data quote.csv | line 12: 2 cells where the header has 3
{FIT} --data hole.csv | column 'age': missing values
{FIT} --data nolabel.csv | y holds missing labels
{FIT} --data thousands.csv | column 'age': numbers are needed
{FIT} --data comma.csv | column 'age': numbers are needed
{FIT} --data units.csv | column 'age': numbers are needed
{FIT} --data date.csv | column 'age': numbers are needed
{FIT} --data percent.csv | column 'age': numbers are needed
{FIT} --data unknown.csv | holds a category that is not declared
{FIT} --data label.csv | labels outside the declared classes 'well', 'ill'
{FIT} --data upper.csv | (column 3 of the table has a similar name)
{LINEAR} --data one.csv | a private fit needs at least 2 records
{FIT} --data adult23:x | needs a seed >= 0
{FIT} --target sate | no column 'sate' (column 3
{FIT} --target age | it declares 'age', which is the label
{FIT} --classes well | at least 2 classes
{FIT} --classes well,ill,dead --risk-share 0.2 | risk_share: scorecards of 3 classes do not take it
{FIT} --classes well,ill,dead --model additive | exactly 2 classes are needed
{FIT} --classes well,well | must differ
{FIT} --classes well,dead | outside the declared classes
{LINEAR} --classes well | at least 2 classes
{FIT} --schema no.toml | no such file
{FIT} --schema t.csv | its name must end in .toml or .json
{FIT} --schema . | its name must end in .toml or .json
{FIT} --schema bad.toml | is not valid TOML
{FIT} --schema kind.toml | kind must be one of numeric, categorical, binned
{FIT} --schema key.toml | unknown keys 'stp' (did you mean 'step'?)
{FIT} --schema bounds.toml | low must be below high
{FIT} --schema list.json | must be an object
{FIT} --schema label.toml | it declares 'state', which is the label
{FIT} --schema other.toml | missing from the table: column 'weight'
{FIT} --save . | --save .: that is a folder
{FIT} --save no/m.json | its folder does not exist
{FIT} --save /dev/null | --save /dev/null: that is no regular file
{FIT} --json /dev/null | --json /dev/null: that is no regular file
{FIT} --save pipe | --save pipe: that is no regular file
{FIT} --save link-to-device | that is no regular file
{LINEAR} --save /dev/null | --save /dev/null: that is no regular file
{LINEAR} --json pipe | --json pipe: that is no regular file
{FIT} --ledger no.ledger | privopt budget create
{FIT} --ledger . | is a folder, not a ledger
{FIT} --ledger t.csv | is not a privopt ledger
{FIT} --ledger torn.ledger | the last line is incomplete
{FIT} --ledger key.ledger | its header must hold
{FIT} --ledger gone.ledger | gone.ledger.head is gone
{FIT} --ledger good.ledger --insecure-seed 1 | its noise is reproducible
{FIT} --ledger good.ledger#more | has no budget 'more'; there are main
{FIT} --ledger good.ledger#main,,main | names of budgets, with commas
{FIT} --ledger two.ledger | holds several budgets (main, more): name the one you mean
{FIT} --ledger altered.ledger | the row of the budget 'main' was altered
{FIT} --ledger postgresql://ana:hunter2@127.0.0.1:1/base | ledger
{FIT} --ledger postgresql://ana:pa#hunter2@127.0.0.1:1/base | names of budgets
{FIT} --ledger mysql://ana:hunter2@127.0.0.1/base | a ledger is an SQLite file
{LINEAR} --ledger no.ledger | privopt budget create
{LINEAR} --ledger two.ledger | holds several budgets
{EVALUATE} --ledger no.ledger | privopt budget create
{EVALUATE} --ledger two.ledger | holds several budgets
{EVALUATE} --ledger t.csv | is not a privopt ledger
plan --schema s.toml --records 9 --epsilon 1 --ledger no.ledger | privopt budget create
plan --schema s.toml --records 9 --epsilon 1 --ledger two.ledger | holds several budgets
predict | Missing argument
predict no.json t.csv | No such file
predict card.json no.csv | no such file
predict t.csv t.csv | not a privopt-scorecard
predict list.model t.csv | not a privopt-scorecard
predict weight.json t.csv | 'weights' contradicts the rest
predict large.json t.csv | OverflowError
predict points.json t.csv | 'scorecard' contradicts the rest
predict linear-key.json t.csv | 'more' contradicts the rest
predict linear-nan.json t.csv | not a privopt-linear
predict card.json noheader.csv | is the first line of the file its header?
predict card.json unknown.csv | holds a category that is not declared
predict card.json t.csv --output . | that is a folder
predict card.json t.csv --output /dev/null | that is no regular file
predict card.json t.csv --output pipe | that is no regular file
predict card.json t.csv --output no/p.csv | its folder does not exist
calibrate | Missing argument
calibrate magic --epsilon 1 | unknown mechanism 'magic'
calibrate auto --epsilon 1 --dimension 3 | needs --records
calibrate seeded --epsilon 1 --dimension 3 | needs --records
calibrate seeded --epsilon 1 --dimension 1 --records 9 | --dimension 2 or more
calibrate seeded --epsilon 1 --dimension 3 --records 9 --radius 2 | does not depend on --radius
calibrate opdisc --epsilon 1 --dimension 3 | needs --delta
calibrate opdisc --epsilon 1 --dimension 3 --cuts 3 | --cuts: belongs to learn-schema
calibrate tree --epsilon 1 --records 9 | tree needs --schema
calibrate evaluation --epsilon 1 --records 9 | evaluation does not take --records
calibrate private-selection --epsilon 1 --records 0 --candidates 3 | --records must be >= 1
calibrate private-selection --epsilon 1 --records 9 --candidates 1 | one candidate needs no search
calibrate opdisc --epsilon 1 --delta 1e-6 | needs --dimension
calibrate opdisc --epsilon 1 --delta 1e-6 --dimension 0 | --dimension must be >= 1
calibrate opdisc --epsilon 1 --delta 1e-6 --dimension 3 --radius -1 | --radius must be > 0
calibrate opdisc --epsilon 1 --delta 2 --dimension 3 | delta must satisfy
calibrate exponential --epsilon 1 --delta 1e-6 | does not depend on --delta
calibrate exponential --epsilon 1 --records 0 | --records must be >= 1
calibrate dp-gd --epsilon 1 --dimension 3 --records 50 --moment 2 | belongs to robust-mean
calibrate trimmed-gd --epsilon 1 --dimension 3 --records 50 --range x | --range must be LOW:HIGH
calibrate rspm --epsilon 1 --delta 1e-6 | needs --dimension or --separators
calibrate rspm --epsilon 1 --delta 1e-6 --separators 0 | --separators must be >= 1
calibrate rspm-laplace --epsilon 1 --dimension 3 --calibration printed | calibration(s) sound
calibrate dp-gd --epsilon 1 | needs --dimension and --records
calibrate dp-gd --epsilon 1 --dimension 0 --records 5 | at least 1 is needed
calibrate dp-gd --epsilon 1 --dimension 3 --records 50 --steps 100000000000 | more than 10,000,000
calibrate dp-gd --epsilon 1 --dimension 3 --records 50 --loss huber:x | a loss is
calibrate dp-gd --epsilon 0 --dimension 3 --records 50 | epsilon must be finite and > 0
audit | name one mechanism, or use --all
audit magic | no audit of 'magic'
audit exponential --runs 0 | Invalid value for '--runs'
audit exponential --runs 800 --journal t.csv | not a journal of audits, and left unchanged
audit exponential --runs 800 --journal pipe | not a regular file
audit exponential --runs 800 --json /dev/null | that is no regular file
budget create new.ledger | Missing option '--epsilon'
budget create new.ledger --epsilon 0 | epsilon must be finite and > 0
budget create new.ledger --epsilon 1 --delta 1 | delta must satisfy
budget create new.ledger --epsilon 1 --rule best | unknown rule 'best'
budget create new.ledger --epsilon 1 --rule gdp | needs --delta > 0
budget create t.csv --epsilon 1 | exists already
budget create good.ledger --epsilon 1 | exists already
budget create good.ledger#a/b --epsilon 1 | would be within 'a', which is not there
budget create good.ledger#a,b --epsilon 1 | one budget is made at a time
budget create postgresql://ana:hunter2@127.0.0.1:1/base --epsilon 1 | ledger
budget create no/l --epsilon 1 | cannot create a ledger
budget show no.ledger | no ledger no.ledger
budget show . | is a folder
budget show torn.ledger | the last line is incomplete
budget show altered.ledger | the row of the budget 'main' was altered
budget list no.ledger | no ledger no.ledger
budget list mysql://ana:hunter2@127.0.0.1/base | a ledger is an SQLite file
budget picture no.ledger | no ledger no.ledger
budget picture good.ledger --output p.gif | its name must end in .svg
budget picture good.ledger --output no/p.png | its folder does not exist
budget export no.ledger | no ledger no.ledger
budget export good.ledger --output e.txt | exports end in .csv or .json
budget export good.ledger --output no/e.csv | its folder does not exist
budget verify no.ledger | no ledger no.ledger
budget verify t.csv | is not a privopt ledger
budget spend two.ledger --epsilon 0.1 | holds several budgets
budget check good.ledger --epsilon x | Invalid value for '--epsilon'
budget check good.ledger --epsilon 0 | epsilon must be finite and > 0
budget spend good.ledger --epsilon 0.1 --delta 2 | delta must satisfy
solvers now | unexpected extra argument
demo --output t.csv | that is a file; name a folder
demo --draws 0 | Invalid value for '--draws'
"""
TABLE = [tuple(part.strip() for part in line.split(" | ")) for line in CASES.strip().splitlines()]


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clinic")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    (folder / "t.csv").write_text(f"age,smoker,state\n{ROWS}")
    (folder / "utf16.csv").write_text(f"age,smoker,state\n{ROWS}", "utf-16")
    (folder / "latin.csv").write_text(f"age,smoker,state\n{ROWS}44,caf\xe9,well\n", "latin-1")
    os.mkfifo(folder / "pipe")
    (folder / "link-to-device").symlink_to("/dev/null")
    SCHEMA.save(folder / "s.toml")
    frame = pd.read_csv(folder / "t.csv")
    X, y = frame.drop(columns="state"), frame["state"]
    options = {"schema": SCHEMA, "classes": ("well", "ill")}
    PrivateHalfspaceClassifier(1.0, **options).fit(X, y).save(folder / "card.json")
    PrivateLogisticRegression(1.0, **options).fit(X, y).save(folder / "linear.json")
    card, linear = (json.loads((folder / f"{name}.json").read_text()) for name in ("card", "linear"))
    points = [{**row, "points": row["points"] + 1} for row in card["scorecard"]]
    for name, model in {
        "weight": {**card, "weights": [0.9, *card["weights"][1:]]},
        "large": {**card, "weights": [10**30, *card["weights"][1:]]},
        "points": {**card, "scorecard": points},
        "linear-key": {**linear, "more": 1},
        "linear-nan": {**linear, "intercept": [float("nan")]},
    }.items():
        (folder / f"{name}.json").write_text(json.dumps(model))
    for name in ("good", "gone", "altered", "two"):
        Ledger.create(folder / f"{name}.ledger", 1.0).reserve(PrivacySpend.pure(0.1, "m"))
    Ledger.create(f"{folder / 'two.ledger'}#more", 1.0)
    (folder / "gone.ledger.head").unlink()
    with sqlite3.connect(folder / "altered.ledger") as database:
        database.execute("UPDATE privopt_budgets SET strength = '0'")
    return folder


def state(folder: Path) -> dict[str, object]:
    return {p.name: p.read_bytes() if p.is_file() else p.lstat().st_mode for p in sorted(folder.iterdir())}


def run(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[object, str, str]:
    monkeypatch.chdir(folder)
    words = words.format(FIT=FIT, LINEAR=LINEAR, EVALUATE=EVALUATE)
    monkeypatch.setattr(sys, "argv", ["privopt", *shlex.split(words)])
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # main replaces it
    with pytest.raises(SystemExit) as caught:
        main()
    return caught.value.code, *capsys.readouterr()


@pytest.mark.parametrize(("words", "told"), TABLE, ids=[words for words, _ in TABLE])
def test_bad_words_get_one_line(
    words: str,
    told: str,
    clinic: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = state(clinic)
    code, _, err = run(words, clinic, monkeypatch, capsys)
    assert code == 2
    assert told in err
    assert "hunter2" not in err
    lines = [line for line in err.splitlines() if line and not line.startswith(("warning:", "note:"))]
    assert len([line for line in lines if "solving; Ctrl-C" not in line]) == 1
    assert state(clinic) == before
    assert Path("/dev/null").is_char_device()


# What is refused by stricter programs, and is right.
RIGHT = {
    "{FIT} --classes 'well, ill'": "spend",
    "{FIT} --schema bom.toml": "spend",
    "{FIT} --data bom.csv": "spend",
    "{FIT} --data blanks.csv": "spend",
    "{FIT} --data lines.csv": "spend",
    "{FIT} --ledger stripped.ledger": "spend",
    "{LINEAR} --data-norm 1 --steps 3 --mechanism dp-gd": "spend",
    "predict card.json header.csv": "score,prediction\n",
    "predict linear.json header.csv": "score,prediction\n",
    "{EVALUATE} --ledger stripped.ledger": "spend",
    "budget show stripped.ledger": "spent epsilon = 0.1 of 5",
    "budget list stripped.ledger": "0.1 of 5",
    "budget verify stripped.ledger": "nothing is wrong: 3 rows",
    "budget export stripped.ledger": "reserved,main,0.1,0.0,pure,,m,,a",
    "budget picture stripped.ledger --output p.svg": "p.svg: main",
}


@pytest.mark.parametrize("words", RIGHT)
def test_what_is_right_is_not_refused(
    words: str, clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = f"age,smoker,state\n{ROWS}"
    (clinic / "bom.toml").write_text((clinic / "s.toml").read_text(), "utf-8-sig")
    (clinic / "bom.csv").write_text(table, "utf-8-sig")
    (clinic / "blanks.csv").write_text(table.replace(",", ", "))
    (clinic / "lines.csv").write_text(table.replace("\n", "\r\n") + "\r\n\r\n")
    ledger = clinic / "stripped.ledger"
    for file in clinic.glob("stripped.ledger*"):
        file.unlink()
    # An older version's, without a last newline.
    facts = {"privopt_ledger": 1, "neighbours": "replace-one", "epsilon": 5.0, "delta": 0.1, "rule": "basic"}
    entry = {"action": "reserve", "id": "a", "spend": PrivacySpend.pure(0.1, "m").to_dict()}
    ledger.write_text(f"{json.dumps(facts)}\n{json.dumps(entry)}")
    code, out, err = run(words, clinic, monkeypatch, capsys)
    assert code == 0, err
    assert RIGHT[words] in out


def test_links_are_followed_and_stay(
    tmp_path: Path, clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target, link = tmp_path / "kept.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to("kept.json")
    code, _, err = run(f"{{FIT}} --save {link}", clinic, monkeypatch, capsys)
    assert code == 0, err
    assert link.is_symlink()
    assert json.loads(target.read_text())["classes"] == ["well", "ill"]


def test_a_refused_release_has_a_price(
    clinic: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run("budget check good.ledger --epsilon 2", clinic, monkeypatch, capsys)
    assert code == 1
    assert "not affordable: spent epsilon = 0.1" in out
    assert "with it, epsilon = 2.1" in out


def test_ctrl_c_during_imports_is_a_word_and_no_traceback() -> None:
    """The command waits in the middle of an import until it is interrupted."""
    program = (
        "import sys, time\n"
        "class Slow:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'privopt.experiments.cli.main':\n"
        "            print('importing', flush=True)\n"
        "            time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from privopt.experiments.cli.start import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "importing\n"
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (130, "Interrupted\n")

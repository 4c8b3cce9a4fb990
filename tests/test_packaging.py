"""The layout promises of CONTRIBUTING: every folder is packaged, none is importable under its bare name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("experiments", "mechanisms", "oracles", "problems")


def packages_on_disk() -> set[str]:
    found = set()
    for folder in FOLDERS:
        for init in (ROOT / folder).rglob("__init__.py"):
            found.add("privopt." + ".".join(init.parent.relative_to(ROOT).parts))
    return found


def setuptools_table() -> dict[str, object]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert isinstance(table, dict)
    return table


def test_packages_equal_what_is_on_disk() -> None:
    # A forgotten subpackage works in editable mode and is missing from the wheel.
    table = setuptools_table()
    assert set(table["packages"]) == packages_on_disk()
    assert table["package-dir"] == {f"privopt.{folder}": folder for folder in FOLDERS}


def test_the_map_of_the_house_has_a_line_for_every_folder() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    folders = {name.removeprefix("privopt.").replace(".", "/") for name in packages_on_disk()}
    assert not [folder for folder in sorted(folders) if f"| `{folder}` |" not in page]


def test_no_file_holds_a_merge_conflict() -> None:
    # Neither the linters nor the site see one in a page.
    texts = [*ROOT.glob("*.md"), *ROOT.glob("*.toml")]
    texts += [f for folder in (*FOLDERS, "tests") for f in (ROOT / folder).rglob("*.*")]
    texts = [f for f in texts if f.suffix in (".md", ".py", ".toml", ".html", ".css", ".csv")]
    assert len(texts) > 500
    marks = ("\n" + "<" * 7 + " ", "\n" + ">" * 7 + " ")
    marked = [f for f in texts if any(mark in f.read_text(encoding="utf-8") for mark in marks)]
    assert not marked


def test_there_is_no_folder_named_privopt() -> None:
    assert not (ROOT / "privopt").exists()
    assert not (ROOT / "__init__.py").exists()


@pytest.mark.parametrize("folder", FOLDERS)
def test_bare_import_is_refused(folder: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"import {folder}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode != 0
    assert f"import privopt.{folder}" in run.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source distribution, and the wheel that is built from it: what installing either gives."""
    out, source = tmp_path_factory.mktemp("built"), tmp_path_factory.mktemp("source") / "privopt"
    # A copy: a build writes beside the sources, where another test worker may build at the same time.
    left_out = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "demo-output")
    shutil.copytree(ROOT, source, ignore=left_out)
    command = [sys.executable, "-m", "build", "--outdir", str(out), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


def modules() -> set[str]:
    files = (path.relative_to(ROOT) for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return {path.as_posix() for path in files if "docs" not in path.parts}


def test_sdist_holds_every_module_and_the_licences(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert modules() <= names
    assert {"LICENSE", "README.md", "problems/datasets/data/LICENSE-adult.txt", "oracles/py.typed"} <= names


def test_wheel_holds_every_module_and_the_data(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"privopt/{module}" for module in modules()} <= names
    assert "privopt/problems/datasets/data/adult.data.gz" in names
    assert "privopt/problems/datasets/data/LICENSE-adult.txt" in names
    assert "privopt/problems/datasets/data/mushrooms.csv.gz" in names
    assert "privopt/mechanisms/estimators/expected_auc.json" in names
    assert {f"privopt/experiments/docs/{page}.md" for page in ("planning", "tuning")} <= names
    assert "privopt/oracles/py.typed" in names
    assert not any(name.startswith("tests/") for name in names)


@pytest.mark.parametrize("dependencies", ["borrowed", pytest.param("installed", marks=pytest.mark.slow)])
def test_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path, dependencies: str) -> None:
    """Its dependencies are borrowed from this environment, whose own privopt is not seen, or installed."""
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}

    def run(*words: object, **more: str) -> str:
        done = subprocess.run(
            [str(w) for w in words],
            cwd=tmp_path,
            env={**clean, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    borrowed = dependencies == "borrowed"
    run(sys.executable, "-m", "venv", "--without-pip", "fresh")
    only = ["--no-deps", "--no-index", "--no-compile"] if borrowed else []
    run(sys.executable, "-m", "pip", "--python", "fresh/bin/python", "install", "--quiet", *only, wheel)
    # Without the .pth files there, which lead to an editable install.
    there = {"PYTHONPATH": sysconfig.get_path("purelib")} if borrowed else {}
    code = (
        "from privopt.problems.datasets import adult as a; print(a.load_adult23(seed=0)[0].shape, a.__file__)"
    )
    shape, _, file = run("fresh/bin/python", "-c", code, **there).strip().rpartition(" ")
    assert shape == "(15682, 23)"
    assert Path(file).is_relative_to(tmp_path / "fresh")
    words = ["calibrate", "rspm-laplace", "--separators", 46, "--epsilon", 1, "--json"]
    noise = run("fresh/bin/privopt", *words, **there)
    assert json.loads(noise)["scale"] == pytest.approx(92.0, rel=1e-4)

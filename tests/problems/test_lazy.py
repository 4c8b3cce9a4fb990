"""Names are imported when they are asked for, from a plain table, without any source beside it."""

from __future__ import annotations

import ast
import compileall
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WINGS = ("problems", "oracles", "mechanisms")


@pytest.mark.parametrize("wing", WINGS)
def test_type_checkers_read_the_names_that_are_loaded(wing: str) -> None:
    tree = ast.parse((ROOT / wing / "__init__.py").read_text("utf-8"))
    [table] = [n.value for n in tree.body if isinstance(n, ast.Assign) and "_HOMES =" in ast.unparse(n)]
    [block] = [n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    read = {
        alias.asname: str(found.module).removeprefix(f"privopt.{wing}.")
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }
    assert read == ast.literal_eval(table)


def test_compiled_files_alone_are_enough(tmp_path: Path) -> None:
    """As in a frozen application, or a wheel of .pyc files."""
    for wing in WINGS:
        shutil.copytree(
            ROOT / wing, tmp_path / "privopt" / wing, ignore=shutil.ignore_patterns("__pycache__")
        )
    assert compileall.compile_dir(tmp_path / "privopt", quiet=2, legacy=True)
    for source in (tmp_path / "privopt").rglob("*.py"):
        source.unlink()
    code = (
        f"import sys; sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]; "
        f"sys.path.insert(0, r'{tmp_path}'); "
        "import privopt.problems, privopt.oracles, privopt.mechanisms as m; "
        "assert privopt.problems.__file__.endswith('.pyc'), privopt.problems.__file__; "
        "print(m.OPDisc.name, m.RISK_MECHANISMS['dp-gd'].name, privopt.oracles.minimizer('enumerate').name)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert run.stdout.split() == ["opdisc", "dp-gd", "enumerate"], run.stderr

"""Every Python block of the README, of CONTRIBUTING and of the page on schemas runs as printed."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from privopt.problems import Numeric, Schema

README = Path(__file__).resolve().parent.parent / "README.md"
CONTRIBUTING = README.parent / "CONTRIBUTING.md"
SCHEMAS = README.parent / "experiments" / "docs" / "schema.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL)


EXAMPLES = [(page, k) for page in (README, CONTRIBUTING, SCHEMAS) for k in range(len(blocks(page, "python")))]


def test_the_pages_have_their_examples() -> None:
    assert len(blocks(README, "python")) >= 2
    assert blocks(CONTRIBUTING, "python")
    assert len(blocks(SCHEMAS, "python")) >= 5


@pytest.mark.parametrize(("page", "number"), EXAMPLES, ids=lambda v: getattr(v, "name", str(v)))
def test_a_block_runs(page: Path, number: int, tmp_path: Path) -> None:
    for declaration in blocks(page, "toml"):
        (tmp_path / "schema.toml").write_text(declaration, "utf-8")
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", blocks(page, "python")[number]],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


def test_options_and_defaults_on_the_page_are_those_of_the_columns() -> None:
    text = SCHEMAS.read_text("utf-8")
    for title, kind in Schema.kinds.items():
        section = text.split(f"### {title}\n")[1].split("\n#")[0]
        declared = inspect.signature(kind).parameters
        for name, parameter in declared.items():
            assert name == "name" or f"`{name}`" in section
            if name == "outside":
                assert f'| `outside` | `"{parameter.default}"` |' in section
    assert Numeric("x", 0, 9).step == 1
    assert "| `step` | 1 |" in text


PAGES = [
    README,
    CONTRIBUTING,
    *sorted((README.parent / "experiments" / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_have_no_placeholder_and_no_dead_link(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"@[A-Z]+@", text)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link

"""Pages: blocks of Python and shell run as printed, links lead somewhere, names exist."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from privopt.problems import Numeric, Schema
from tests.warm_process import run_program, warm_process

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "experiments" / "docs"
README, CONTRIBUTING, SCHEMAS = ROOT / "README.md", ROOT / "CONTRIBUTING.md", DOCS / "schema.md"
PAGES = [README, CONTRIBUTING, ROOT / "SECURITY.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return [body for _, body in fenced(page, language)]


def fenced(page: Path, languages: str) -> list[tuple[str, str]]:
    """The language and the text of every fenced block in one of them, in order."""
    return re.findall(
        rf"^```({languages})\n(.*?)^```", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def test_the_pages_have_their_examples() -> None:
    assert len(blocks(README, "python")) >= 2
    assert blocks(CONTRIBUTING, "python")
    assert len(blocks(SCHEMAS, "python")) >= 5


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with warm_process(tmp_path_factory.mktemp("warm")) as folder:
        yield folder


@pytest.mark.parametrize("page", [page for page in PAGES if fenced(page, "python|sh")], ids=lambda p: p.name)
def test_the_blocks_of_a_page_run_one_after_the_other(page: Path, warm: Path, tmp_path: Path) -> None:
    for declaration in blocks(page, "toml"):
        (tmp_path / "schema.toml").write_text(declaration, "utf-8")
    steps = []
    for language, body in fenced(page, "python|sh"):
        shell = f"import subprocess; subprocess.run(['bash', '-euc', {body!r}], check=True)"
        steps.append(body if language == "python" else shell)
    program = "".join(f"exec(compile({step!r}, 'block {k}', 'exec'))\n" for k, step in enumerate(steps, 1))
    status, printed, said = run_program(warm, program, tmp_path)
    assert status == 0, said
    assert printed.strip()


def test_places_in_the_code_that_the_theory_names_exist() -> None:
    text = (DOCS / "theory.md").read_text("utf-8")
    places = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert len(places) > 40
    for path, symbol in places:
        if path == "file.py":
            continue
        code = (ROOT / path).read_text("utf-8")
        assert not symbol or re.search(rf"^(class|def) {symbol}\b", code, flags=re.MULTILINE), (path, symbol)


def test_every_mechanism_has_a_place_in_the_theory() -> None:
    from privopt.mechanisms.registry import MEANS, MECHANISMS, RISK_MECHANISMS, ROBUST_MECHANISMS

    text = (DOCS / "theory.md").read_text("utf-8")
    for kind in {
        *MECHANISMS.values(),
        *RISK_MECHANISMS.values(),
        *MEANS.values(),
        *ROBUST_MECHANISMS.values(),
    }:
        assert f"::{kind.__name__}`" in text, kind.__name__


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


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_have_no_placeholder_and_no_dead_link(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"@[A-Z]+@", text)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link


def test_every_guide_begins_with_the_question_that_brings_a_reader_there() -> None:
    text = (DOCS / "index.md").read_text("utf-8")
    lists = [
        re.findall(rf":caption: {kind}\n:hidden:\n(.*?)```", text, re.DOTALL)
        for kind in ("Tutorials", "How to")
    ]
    guides = [name for found in lists for name in found[0].split()]
    assert len(guides) > 15
    for name in guides:
        lines = (DOCS / f"{name}.md").read_text("utf-8").split("\n")
        words = [line for line in lines if line and not line.startswith("```")]
        assert "?" in words[0] + words[1], name


def test_the_version_is_one_everywhere() -> None:
    stated = re.findall(
        r'^version[:=]? ?=? ?"?([\d.]+)"?$', (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE
    )
    project = re.findall(r'^version = "([\d.]+)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert stated == project
    assert f"## {project[0]}" in (ROOT / "CHANGELOG.md").read_text()

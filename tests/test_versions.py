"""Versions of the site: built from their own pages and code, with a menu that leads from one to another."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import pytest
import quickjs

SCRIPT = Path(__file__).resolve().parent.parent / "experiments" / "docs" / "versions.py"
spec = importlib.util.spec_from_file_location("versions", SCRIPT)
assert spec is not None
assert spec.loader is not None
site = importlib.util.module_from_spec(spec)
spec.loader.exec_module(site)

CONF = """from privopt.problems import WHICH
rst_epilog = f".. |which| replace:: {WHICH}"
def setup(app):
    if app.tags.has("versions"):
        app.add_js_file("../../versions.js")
"""
# The elements that the menu touches: what is appended to what, and nothing else of a browser.
PAGE = """
class URL { constructor(path, base) { this.href = base.replace(/[^/]*$/, ""); } }
const element = () => ({parts: [], append(part) { this.parts.push(part); },
  setAttribute(name, value) { this[name] = value; }});
let menu = null;
const location = {href: "file:///site/0.9/new.html#part"};
const document = {
  currentScript: {src: "file:///site/versions.js"}, createElement: element,
  addEventListener(event, run) { this.run = run; },
  querySelector() { return {after(made) { menu = made; }}; },
};
"""


def git(root: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(root), *who, *words], check=True, capture_output=True)


def commit(root: Path, which: str) -> None:
    (root / "problems" / "__init__.py").write_text(f"WHICH = {which!r}\n")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", which)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "experiments" / "docs").mkdir(parents=True)
    for package in ("problems", "oracles", "mechanisms"):
        (root / package).mkdir()
    git(root, "init", "-q")
    (root / "pyproject.toml").write_text('[project]\nversion = "0.9"\n')
    (root / "experiments" / "docs" / "conf.py").write_text(CONF)
    (root / "experiments" / "docs" / "index.rst").write_text(
        "Title\n=====\n\nCode |which|, version |release|.\n"
    )
    commit(root, "first")
    return root


def test_releases_are_tags_by_number_and_the_last_commit_is_main(root: Path) -> None:
    assert site.versions(root) == {"0.9": "HEAD"}
    for tag in ("v0.9", "v0.10", "v0.10.1", "wip", "v1-draft"):
        git(root, "tag", tag)
    assert list(site.versions(root)) == ["0.10.1", "0.10", "0.9", "main"]


def test_every_version_shows_its_own_code_and_a_release_is_built_once(root: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    git(root, "tag", "v0.9")
    commit(root, "second")
    site.build_all(root, made)
    assert "Code first, version 0.9." in (made / "0.9" / "index.html").read_text("utf-8")
    assert "Code second, version main." in (made / "main" / "index.html").read_text("utf-8")
    assert 'src="_static/../../versions.js' in (made / "main" / "index.html").read_text("utf-8")
    assert "url=0.9/index.html" in (made / "index.html").read_text("utf-8")
    assert (
        '[["0.9", ["genindex.html", "index.html", "search.html"]], ["main"'
        in (made / "versions.js").read_text()
    )

    built: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(site, "build", lambda root, commit, name, made: built.append(name))
        site.build_all(root, made)
    assert built == ["main"]


def test_the_menu_leads_to_the_same_page_where_a_version_has_it() -> None:
    pages = [
        ["0.10", ["index.html", "new.html"]],
        ["0.9", ["index.html", "new.html"]],
        ["0.8", ["index.html"]],
    ]
    engine = quickjs.Context()
    engine.eval(
        f"{PAGE}const versions = {json.dumps(pages)};\n{site.MENU.read_text('utf-8')}\ndocument.run();"
    )
    summary, *links = json.loads(engine.eval("JSON.stringify(menu.parts)"))
    assert summary["textContent"] == "Version 0.9"
    leads = [(link["href"], "aria-current" in link) for link in links]
    assert leads == [
        ("file:///site/0.10/new.html", False),
        ("file:///site/0.9/new.html", True),
        ("file:///site/0.8/index.html", False),
    ]

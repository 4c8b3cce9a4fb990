"""The site: it builds without a warning, and its search answers what readers ask."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import quickjs

import privopt.mechanisms
import privopt.oracles
import privopt.problems

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "experiments" / "docs"

# A browser that has nothing but what the scripts of the search touch when they are loaded.
BROWSER = """
globalThis.window = globalThis;
Object.assign(globalThis, {location: {search: ""}, addEventListener() {}});
var document = {
  readyState: "loading", addEventListener() {},
  querySelector() { return null; }, getElementById() { return null; },
  documentElement: {dataset: {content_root: "./"}},
};
var DOCUMENTATION_OPTIONS = {FILE_SUFFIX: ".html", LINK_SUFFIX: ".html", BUILDER: "html"};
var _ = (text) => text, _ready = () => {}, SPHINX_HIGHLIGHT_ENABLED = false;
"""
ASK = """
function ask(words) {
  const [query, terms, without, shown, objects] = Search._parseQuery(words);
  return JSON.stringify(Search._performSearch(query, terms, without, shown, objects).reverse());
}
"""
# What a reader types, and a page that answers it.
QUESTIONS = {
    "epsilon": "privacy",
    "which epsilon": "faq",
    "delta": "privacy",
    "multiclass": "howto/several-classes",
    "more than two classes": "howto/several-classes",
    "missing values": "howto/missing-values",
    "NaN": "howto/missing-values",
    "rare class": "howto/rare-class",
    "class imbalance": "howto/rare-class",
    "class_weight": "howto/rare-class",
    "cross-validation": "faq",
    "GridSearchCV": "tuning",
    "hyperparameters": "tuning",
    "feature selection": "subsets",
    "confidence interval": "intervals",
    "p-value": "intervals",
    "codebook": "howto/no-codebook",
    "several records per person": "howto/several-records",
    "budget": "budgets",
    "team": "howto/two-analysts",
    "Dask": "howto/cluster",
    "Spark": "howto/cluster",
    "Parquet": "large-tables",
    "PostgreSQL": "large-tables",
    "own solver": "howto/own-solver",
    "custom oracle": "howto/own-solver",
    "Gurobi": "oracles",
    "own mechanism": "extending",
    "convex set": "extending",
    "decision tree": "decision-trees",
    "scorecard": "cards",
    "logistic regression": "choosing",
    "outliers": "heavy-tails",
    "saddle point": "nonconvex",
    "proof": "theory",
    "GPU": "faq",
    "credit": "gallery/credit",
    "churn": "gallery/marketing",
    "mushrooms": "gallery/mushrooms",
    "example": "tutorial",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; from a copy of the pages, as the build writes those of the examples among them."""
    made, root = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("root")
    pages = root / "experiments" / "docs"
    shutil.copytree(DOCS, pages, ignore=shutil.ignore_patterns("gallery"))
    for page in ROOT.glob("*.md"):  # some are included
        shutil.copy(page, root)
    words = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-q",
        "-b",
        "html",
        "-t",
        "versions",
        str(pages),
        str(made),
    ]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return made


def test_examples_show_what_they_released_and_its_cost(site: Path) -> None:
    sources = sorted(path.stem for path in (DOCS / "examples").glob("*.py"))
    assert len(sources) == 10
    for name in sources:
        page = (site / "gallery" / f"{name}.html").read_text("utf-8")
        for part in ("Question.", "Data.", "Result.", "Cost", "Total running time"):
            assert f">{part}" in page, (name, part)
        assert "replace-one" in page.split("Cost", 1)[1] or "epsilon" in page.split("Cost", 1)[1], name


def test_the_reference_has_every_public_name_and_every_option(site: Path) -> None:
    reference = (site / "api.html").read_text("utf-8")
    for package in (privopt.mechanisms, privopt.oracles, privopt.problems):
        for name in package.__all__:
            if callable(getattr(package, name)):
                assert f'id="{package.__name__}.{name}"' in reference, name
    assert 'id="privopt.oracles.Status.OPTIMAL"' in reference
    first, last = (f'id="privopt.mechanisms.{name}"' for name in ("PrivateHalfspaceClassifier", "OPDisc"))
    assert reference.index(first) < reference.index(last)
    assert "--risk-share" in (site / "commands.html").read_text("utf-8")


def test_every_page_can_show_the_menu_of_versions(site: Path) -> None:
    for name in ("index.html", "howto/first-card.html"):
        (script,) = re.findall(r'src="([^"?]*versions\.js)', (site / name).read_text("utf-8"))
        assert (site / name).parent.joinpath(script).resolve() == site.parent / "versions.js"


def test_the_search_answers_questions_within_three_pages(site: Path) -> None:
    engine = quickjs.Context()
    engine.eval(BROWSER)
    for script in ("base-stemmer.js", "english-stemmer.js", "language_data.js", "searchtools.js"):
        path = site / "_static" / script
        if path.exists():  # Sphinx 8 has its stemmer in language_data.js
            engine.eval(path.read_text("utf-8").replace("const Search", "var Search"))
    engine.eval((site / "searchindex.js").read_text("utf-8"))
    engine.eval(ASK)
    missed = {}
    for words, page in QUESTIONS.items():
        found = list(dict.fromkeys(hit[0] for hit in json.loads(engine.eval(f"ask({json.dumps(words)})"))))
        if page not in found[:3]:
            missed[words] = found[:3]
    assert not missed

"""The site: it builds without a warning, and its search answers what readers ask."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import unquote

import quickjs

import privopt.mechanisms
import privopt.oracles
import privopt.problems

DOCS = Path(__file__).resolve().parent.parent / "experiments" / "docs"

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
    "own mechanism": "howto/own-mechanism",
    "own set": "howto/own-set",
    "convex set": "howto/own-set",
    "dates": "howto/dates",
    "date of birth": "howto/dates",
    "weekday": "howto/dates",
    "decision tree": "decision-trees",
    "scorecard": "cards",
    "logistic regression": "choosing",
    "outliers": "heavy-tails",
    "saddle point": "nonconvex",
    "proof": "theory",
    "GPU": "faq",
    "credit": "gallery/credit",
    "churn": "gallery/churn",
    "mushrooms": "gallery/mushrooms",
    "example": "tutorial",
    "sample size": "planning",
    "hypothesis test": "intervals",
    "threat model": "privacy",
    "data protection": "privacy",
    "GDPR": "privacy",
    "MPS": "instances",
    "formulation": "instances",
    "certificate": "oracles",
    "random forest": "faq",
    "neural network": "faq",
    "license": "faq",
    "readmission": "gallery/readmission",
    "loan": "gallery/loan",
    "notebook": "faq",
    "Jupyter": "faq",
    "progress bar": "faq",
    "telemetry": "faq",
    "survey weights": "faq",
}
# What four readers ask first, and where the answer is.
READERS = {
    "a statistician": {
        "Do the intervals include the noise?": "intervals.html#interpretation",
        "Is their coverage measured?": "intervals.html#measured",
        "How many records do I need?": "planning.html#auc-a-band-not-a-promise",
        "Can I compare subgroups?": "intervals.html#means-of-subgroups",
        "How good is the model on other records?": "evaluation.html#a-regression",
        "Is there a p-value, and for all coefficients at once?": "intervals.html#interpretation",
        "What if residuals spread unevenly?": "intervals.html#uneven-spreads",
        "Do the weights of my survey count?": "cards.html#fit-with-risks",
        "Are two models different?": "evaluation.html#two-models-on-the-same-records",
        "Which labels can be predicted?": "faq.html",
        "How sure are the points of a card?": "intervals.html#shapes",
        "Which of thousands of columns are taken, and what proves it?": "theory.html#column-screening",
        "What does the choice of the best model cost?": "tuning.html#the-guarantee",
    },
    "an engineer of operations research": {
        "Does it take my solver?": "oracles.html#a-solver-of-your-own",
        "What do I have to write?": "howto/own-solver.html",
        "What are the integer programs?": "instances.html#the-models",
        "What has a solver to prove?": "theory.html#from-a-proof-to-a-release",
        "Which solver is fastest?": "oracles-compared.html#in-short",
        "How large a problem is solved?": "scaling.html",
        "What happens at a time limit?": "oracles.html",
        "Can I have the instances as files?": "instances.html#the-numbers",
        "Is there a solver of constraints on cards?": "oracles.html#solvers-of-nearest-cards",
        "How are ties broken?": "theory.html#one-point-of-a-lattice",
    },
    "an analyst of a hospital": {
        "What do I type for my CSV file?": "howto/first-card.html",
        "What becomes of NA?": "howto/missing-values.html",
        "Patients come more than once.": "howto/several-records.html",
        "Which epsilon?": "faq.html",
        "How do I print it?": "cards.html#print",
        "Few patients have the illness.": "howto/rare-class.html",
        "What do I do with dates of admission?": "howto/dates.html",
        "Are my records enough?": "feasible.html",
        "How does it get into our database?": "cards.html#print",
        "How good is it, and may I publish that?": "cards.html#evaluate",
        "No points may fall with age.": "cards.html#constraints",
        "Is a tree better?": "decision-trees.html#choice-of-a-model",
    },
    "a privacy officer": {
        "What is promised?": "privacy.html#in-plain-words",
        "What is not covered?": "privacy.html#not-covered-by-epsilon",
        "How is a total kept?": "budgets.html#several-budgets",
        "Who checked it?": "privacy.html#audits",
        "Whom do I tell of a fault?": "security.html#how-to-report",
        "Is it anonymous in the sense of a law?": "privacy.html#in-plain-words",
        "What if two analysts work on one table?": "howto/two-analysts.html",
        "Where is it written what was released?": "budgets.html#history",
        "May categories be read off the records?": "schema.html#a-schema-that-is-learned-and-paid-for",
        "Can somebody alter the ledger?": "privacy.html#several-releases-which-rule-a-ledger-adds-up-by",
        "Does anything leave the machine?": "faq.html",
    },
}


def test_examples_show_what_they_released_and_its_cost(site: Path) -> None:
    sources = sorted(path.stem for path in (DOCS / "examples").glob("*.py"))
    assert len(sources) == 13
    for name in sources:
        page = (site / "gallery" / f"{name}.html").read_text("utf-8")
        for part in ("Question.", "Data.", "Schema.", "Result.", "Cost", "Total running time"):
            assert f">{part}" in page, (name, part)
        assert not re.search(r"\w\(\w+=|\.py:\d", "".join(printed(page))), name  # no raw objects, no paths
        assert "replace-one" in page.split("Cost", 1)[1] or "epsilon" in page.split("Cost", 1)[1], name


def printed(page: str) -> list[str]:
    """What the blocks of an example printed."""
    return re.findall(r'<div class="sphx-glr-script-out.*?</pre>', page, flags=re.DOTALL)


def test_the_reference_has_every_public_name_and_every_option(site: Path) -> None:
    reference = (site / "api.html").read_text("utf-8")
    for package in (privopt.mechanisms, privopt.oracles, privopt.problems):
        for name in package.__all__:
            if callable(getattr(package, name)):
                assert f'id="{package.__name__}.{name}"' in reference, name
    assert 'id="privopt.oracles.Status.OPTIMAL"' in reference
    first, last = (f'id="privopt.mechanisms.{name}"' for name in ("PrivateHalfspaceClassifier", "OPDisc"))
    assert reference.index(first) < reference.index(last)
    assert 'Type<span class="colon">' not in reference  # "The width: a number" of a property, taken apart
    assert "--risk-share" in (site / "commands.html").read_text("utf-8")


def test_readers_find_their_answers_by_two_clicks_and_a_heading(site: Path) -> None:
    """By links in the text alone: on a phone the list of all pages is hidden."""
    clicks, last = {"index.html": 0}, ["index.html"]
    for distance in (1, 2):
        led = {page for name in last for page in links(site, name)} - clicks.keys()
        clicks |= dict.fromkeys(led, distance)
        last = sorted(led)
    for reader, questions in READERS.items():
        for question, answer in questions.items():
            page, _, heading = answer.partition("#")
            assert page in clicks, (reader, question)
            assert not heading or f'id="{heading}"' in (site / page).read_text("utf-8"), (reader, question)


def links(site: Path, name: str) -> set[str]:
    """The pages that the text of a page leads to."""
    text = (site / name).read_text("utf-8").split("<article", 1)[1].split("</article>", 1)[0]
    found = {(site / name).parent / link for link in re.findall(r'href="([^":#]+\.html)', text)}
    return {page.resolve().relative_to(site).as_posix() for page in found}


def test_every_link_within_the_site_leads_to_a_page_and_a_heading(site: Path) -> None:
    texts = {page: page.read_text("utf-8") for page in site.rglob("*.html")}
    places = {page: set(re.findall(r'\sid="([^"]+)"', text)) for page, text in texts.items()}
    for page, text in texts.items():
        for link in set(re.findall(r'href="(?![a-z]+:)([^"]+)"', text)):
            path, _, heading = unquote(unescape(link)).partition("#")
            target = (page.parent / path.partition("?")[0]).resolve() if path else page
            assert target.exists(), (page.name, link)
            assert not heading or heading in places.get(target, {heading}), (page.name, link)


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not re.search(r"""src="https?:|<link[^>]*href="https?:""", page.read_text("utf-8")), page


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

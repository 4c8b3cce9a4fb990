"""Pages in a real browser, as wide as a phone: nothing runs off, and axe finds nothing to correct.

Behind ``slow``, where Chromium and axe are installed: ``make test-browser``.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from privopt.experiments.workbench.report import Listing, Picture
from privopt.experiments.workbench.report import page as report
from privopt.mechanisms import (
    PrivateAdditiveTreeClassifier,
    PrivateHalfspaceClassifier,
    PrivateTreeClassifier,
    evaluate,
)
from privopt.mechanisms.estimators.additive_card import additive_page
from privopt.mechanisms.estimators.card_choice import choice_page
from privopt.mechanisms.estimators.class_page import class_page
from privopt.mechanisms.estimators.page import card_page
from privopt.mechanisms.estimators.tree_page import tree_page
from privopt.problems import Binned, Categorical, Schema

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
WIDTH = 390
# The page is looked at in a frame of a phone's width, which has the origin of the document around it.
AROUND = """<!doctype html><title>frame</title>
<iframe id="page" width="{width}" height="900" srcdoc="{page}"></iframe><pre id="found"></pre>
<script>
document.getElementById("page").addEventListener("load", async (event) => {{
  const inside = event.target.contentWindow;
  inside.eval({axe});
  const found = await inside.axe.run({{runOnly: ["wcag2a", "wcag2aa"]}});
  const faults = found.violations.map((v) => [v.id, v.nodes.map((n) => n.html.slice(0, 200))]);
  const cut = [...inside.document.querySelectorAll(".table-wrapper:not(:has(td.text-right))")]
    .filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.textContent.slice(0, 200));
  const end = inside.document.querySelector("article, main, body").getBoundingClientRect().bottom;
  document.getElementById("found").textContent =
    JSON.stringify({{width: inside.document.documentElement.scrollWidth, end, faults, cut}});
}});
</script>
"""

SCHEMA = Schema(
    [
        Binned("number_of_late_payments_in_the_last_twelve_months", edges=[0, 1, 2, 3, 20]),
        Categorical("employment", ["salaried", "self-employed-with-employees", "none"]),
    ],
    intercept=True,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium"),
    pytest.mark.skipif(find_spec("axe_playwright_python") is None, reason="no axe"),
]


def look_at(page: str, folder: Path, width: int = WIDTH) -> dict[str, Any]:
    """Open a page, whose links are relative to the folder; return its size, and what axe found."""
    axe = (resources.files("axe_playwright_python") / "axe.min.js").read_text("utf-8")
    around = AROUND.format(width=width, page=html.escape(page), axe=json.dumps(axe).replace("</", "<\\/"))
    (folder / "around.html").write_text(around, "utf-8")
    words = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--no-first-run", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=20000",
        "--dump-dom", (folder / "around.html").as_uri(),
    ]  # fmt: skip
    run = subprocess.run(words, capture_output=True, text=True, check=True)
    (found,) = re.findall(r'<pre id="found">(.*?)</pre>', run.stdout, flags=re.DOTALL)
    seen: dict[str, Any] = json.loads(html.unescape(found))
    return seen


def pages() -> dict[str, str]:
    """Return a page of each kind, with long names; those of a card and of a tree with evaluations."""
    rng, n = np.random.default_rng(0), 2000
    table = {
        "number_of_late_payments_in_the_last_twelve_months": rng.poisson(1.0, n),
        "employment": rng.choice(["salaried", "self-employed-with-employees", "none"], n),
    }
    late = table["number_of_late_payments_in_the_last_twelve_months"]
    y = np.where(rng.random(n) < 1 / (1 + np.exp(2 - late)), "yes", "no")
    made = {}
    for name, kind, page in (
        ("card", PrivateHalfspaceClassifier, card_page),
        ("tree", PrivateTreeClassifier, tree_page),
    ):
        model = kind(3.0, schema=SCHEMA, classes=("no", "yes"), risk_share=0.2, insecure_seed=1)
        model.fit(table, y)
        found = evaluate(model, table, y, epsilon=1.0, insecure_seed=1)
        made[name] = page(model.card_, found, seen=True)
        if name == "card":
            made["choice"] = choice_page(model.near_cards(3))
    both = PrivateAdditiveTreeClassifier(3.0, schema=SCHEMA, classes=("no", "yes"), insecure_seed=1)
    made["both"] = additive_page(both.fit(table, y).card_)
    grades = PrivateHalfspaceClassifier(3.0, schema=SCHEMA, classes=("none", "some", "much"), insecure_seed=1)
    grades.fit(table, np.array(["none", "some", "much"])[np.minimum(late, 2)])
    made["classes"] = class_page(grades.card_)
    made["class choice"] = choice_page(grades.near_cards(3, gap=0.5))
    return made


@pytest.mark.parametrize("name", ["card", "tree", "classes", "both", "choice", "class choice"])
def test_pages_of_models_fit_a_phone_and_satisfy_axe(name: str, tmp_path: Path) -> None:
    found = look_at(pages()[name], tmp_path)
    assert found["faults"] == []
    assert found["width"] <= WIDTH


@pytest.mark.parametrize("name", ["card", "tree", "classes", "both"])
def test_a_page_of_a_model_prints_on_one_page(name: str, tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(pages()[name], "utf-8")
    words = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
        "--no-first-run", f"--user-data-dir={tmp_path / 'profile'}", "--no-pdf-header-footer",
        f"--print-to-pdf={tmp_path / 'page.pdf'}", (tmp_path / "page.html").as_uri(),
    ]  # fmt: skip
    subprocess.run(words, capture_output=True, check=True)
    assert len(re.findall(rb"/Type\s*/Page\b(?!s)", (tmp_path / "page.pdf").read_bytes())) == 1


def test_a_report_fits_a_phone_and_satisfies_axe(tmp_path: Path) -> None:
    figure = Figure()
    figure.subplots().plot([1, 2])
    frame = pd.DataFrame({f"column {k}": [k / 7] for k in range(20)})
    parts = ["Words.", Listing(frame, "Numbers."), Picture(figure, "A line."), " log" * 100]
    found = look_at(report("Report", [("Results", parts)]), tmp_path)
    assert found["faults"] == []
    assert found["width"] <= WIDTH


def test_axe_finds_a_fault_that_is_put_in(tmp_path: Path) -> None:
    page = pages()["card"].replace('<html lang="en">', "<html>").replace("--soft: #5b6675", "--soft: #dddddd")
    rules = {rule for rule, _ in look_at(page, tmp_path)["faults"]}
    assert {"html-has-lang", "color-contrast"} <= rules


def test_the_first_page_is_three_screens_of_a_laptop(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    found = look_at((tmp_path / "index.html").read_text("utf-8"), tmp_path, width=1366)
    assert found["faults"] == []
    assert found["end"] <= 3 * 768


def test_pages_of_the_site_fit_a_phone_and_satisfy_axe(site: Path, tmp_path: Path) -> None:
    shutil.copytree(site, tmp_path, dirs_exist_ok=True)
    for name in (
        "index",
        "choosing",
        "trees",
        "scorecards",
        "gallery/index",
        "gallery/team",
        "gallery/churn",
        "gallery/wide",
        "howto/first-card",
    ):
        path = tmp_path / f"{name}.html"
        found = look_at(path.read_text("utf-8"), path.parent)
        assert found["width"] <= WIDTH, name
        assert found["faults"] == [], name
        assert found["cut"] == [], name  # tables of words are stacked

"""Runs that keep what they have finished, and the pictures and the page made of them."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd

from privopt.experiments.demo import claims, for_people, summary
from privopt.experiments.workbench.figures import (
    accuracy_figure,
    certificate_figure,
    named,
    save,
    solver_profile,
    weights,
)
from privopt.experiments.workbench.report import Listing, Picture, page
from privopt.experiments.workbench.runs import Repeats, Results, Setting, run_settings
from privopt.mechanisms import MECHANISMS
from privopt.oracles import Progress
from privopt.problems import IntegerLattice

RNG = np.random.default_rng(0)
TRAIN = RNG.integers(-3, 4, (40, 3)), RNG.choice([-1, 1], 40)
SETTINGS = [
    Setting(m, IntegerLattice(-1, 1, dimension=3), e, 1e-3) for m in MECHANISMS.values() for e in (1.0, 5.0)
]


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path = tmp_path / "draws.csv"
    run_settings(SETTINGS[:3], 2, Repeats(TRAIN, TRAIN), Results(path))
    assert len(pd.read_csv(path)) == 6
    fresh: list[object] = []
    resumed = Results(path)
    run_settings(SETTINGS, 2, Repeats(TRAIN, TRAIN), resumed, on_row=fresh.append)
    assert len(fresh) == 2 * len(SETTINGS) - 6
    whole = Results(tmp_path / "whole.csv")
    run_settings(SETTINGS, 2, Repeats(TRAIN, TRAIN), whole)
    columns = ["mechanism", "epsilon", "draw", "train_accuracy", "gap"]
    pd.testing.assert_frame_equal(
        resumed.frame[columns].reset_index(drop=True), whole.frame[columns].reset_index(drop=True)
    )
    table = summary(whole.frame)
    assert table["draws"].tolist() == [2] * len(SETTINGS)
    assert table["largest_gap"].max() == 0


def test_pictures_and_page(tmp_path: Path) -> None:
    results = Results(tmp_path / "draws.csv")
    run_settings(SETTINGS, 2, Repeats(TRAIN, TRAIN), results)
    trace = [Progress(9.0, 1.0, 1, 0.1), Progress(5.0, 5.0, 2, 0.3)]
    figures = [
        accuracy_figure(results.frame, {"best": 0.9}, "train_accuracy"),
        solver_profile(results.frame),
        certificate_figure(trace, "a solve"),
    ]
    ticks = [label.get_text() for label in figures[0].axes[0].get_xticklabels()]
    assert ticks == ["1", "5"]
    draws, noise = figures[0].axes
    assert draws.get_title(loc="left") == "Exact draws; pure (δ = 0)"
    assert noise.get_title(loc="left") == "Noise on an objective, or on gradients; δ = 0.001"
    names = [text.get_text() for axes in (draws, noise) for text in axes.texts if text.get_text() != "best"]
    assert names[0] == "Exponential mechanism, [-1, 1]³"
    assert {"RSPM, Gaussian noise, [-1, 1]³", "RSPM, Laplace noise, [-1, 1]³, pure"} <= set(names)
    assert len(names) == len(MECHANISMS)
    profile = [text.get_text() for text in figures[1].legends[0].get_texts()]
    assert profile[0] == "Exponential mechanism, [-1, 1]³, ε from 1 to 5"
    for number, figure in enumerate(figures):
        save(figure, tmp_path / f"{number}.png")
        assert (tmp_path / f"{number}.png").read_bytes().startswith(b"\x89PNG")
    table = for_people(summary(results.frame))
    pictures = [Picture(figure, f"caption <{k}>") for k, figure in enumerate(figures)]
    text = page("A <title>", [("Heading", ["1 < 2", " kept\n lines", Listing(table, "numbers"), *pictures])])
    seen = Outline()
    seen.feed(text)
    seen.close()
    assert seen.open == []
    assert "A &lt;title&gt;" in text
    assert "1 &lt; 2" in text
    assert seen.tags.count("img") == 3
    assert seen.tags.count("figcaption") == seen.tags.count("figure") == 4
    assert seen.tags.count("tr") == 1 + len(table)
    assert 'name="viewport"' in text
    # Self-contained: nothing is loaded from anywhere.
    assert all(source.startswith("data:image/svg+xml;base64,") for source in seen.sources)
    assert not {"script", "link", "iframe"} & set(seen.tags)


class Outline(HTMLParser):
    """Tags in order, those still open, and what images are loaded from; a wrong closing tag fails."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        if tag == "img":
            assert dict(attrs)["alt"]
            self.sources.append(dict(attrs)["src"] or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_every_mechanism_states_its_claim_and_its_noise() -> None:
    table = claims(SETTINGS)
    assert table["Mechanism"].tolist() == [named(name) for name in MECHANISMS]
    by_name = table.set_index("Mechanism")
    assert by_name.loc["OPDisc", "Claim"] == "(ε, δ)-DP, proved"
    assert by_name.loc["Permute-and-flip", "Claim"] == "ε-DP, proved"
    # Laplace noise of scale 2 (number of separators) / epsilon; {-1, 0, 1}^3 has two for each coordinate.
    assert by_name.loc["RSPM, Laplace noise", "Noise at ε = 1"] == "scale = 12"


def test_lattices_are_written_for_people() -> None:
    assert weights("[-4, 4]^23 with |w|^2 <= 23") == "[-4, 4]²³, |w|² ≤ 23"
    assert weights(str(IntegerLattice(-1, 1, dimension=10))) == "[-1, 1]¹⁰"
    assert weights("a box of 6 points in Z^2") == "a box of 6 points in Z²"

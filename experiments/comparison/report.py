"""What a comparison shows: profiles, times against size, gaps over time, disagreements; one page in HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from privopt.experiments.comparison.race import SOLVED
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.kept import machine, markdown, seconds
from privopt.experiments.workbench.report import Listing, Part, Picture, page
from privopt.mechanisms.estimators.common import write_atomically

Section = tuple[str, list[Part]]
INSTANCE = ["data", "n", "d", "question", "epsilon", "draw"]
# Two proofs in floating point may differ by twice a solver's tolerance, in errors.
_TOLERANCE = 1e-4
_SHORTEST = 1e-3  # seconds: what is faster counts as this fast
_LIBRARIES = ("privopt", "numpy", "pulp", "highspy", "ortools", "pyscipopt", "numba", "scipy")
# Colour-blind safe (Okabe and Ito 2008): one per solver; rows are dashed, cells solid.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def disagreements(solves: pd.DataFrame) -> pd.DataFrame:
    """Instances on which two proofs, or a proof and a point, contradict each other. There must be none.

    A bound above somebody's value refutes it, whoever is right. Proofs in integers must agree exactly.
    """
    known = solves.assign(slack=np.where(solves["exact"], 0.0, _TOLERANCE))
    groups = known.groupby(INSTANCE, sort=False)
    least = groups["value"].transform("min")
    return solves[(known["bound"] - known["slack"] > least).to_numpy()]


def certified(solves: pd.DataFrame, limit: float) -> pd.DataFrame:
    """For each oracle: what it took on, what it proved, how fast."""
    lines = []
    for oracle, group in solves.groupby("oracle", sort=False):
        asked = group[group["status"] != "refused"]
        proved = group[group["status"] == SOLVED]
        lines.append(
            {
                "oracle": oracle,
                "instances": len(group),
                "refused": len(group) - len(asked),
                "failed or died": int(group["status"].isin(["failed", "died"]).sum()),
                "proved": len(proved),
                "share proved": f"{len(proved) / len(group):.0%}",
                "in integers": int(proved["exact"].sum()),
                "median seconds": _median(group, limit),
                "seconds to build": _words(group["build_seconds"].median()),
                "gap left, median": _words(asked.loc[asked["status"] == "open", "gap"].median()),
            }
        )
    return pd.DataFrame(lines).sort_values("proved", ascending=False)


def _median(group: pd.DataFrame, limit: float) -> str:
    """Over all instances; what was not proved took longer than any that was."""
    times = np.where(group["status"] == SOLVED, _time(group), np.inf)
    middle = float(np.median(times))
    return _words(middle) if math.isfinite(middle) else "not within the limit"


def _words(value: float) -> str:
    return "" if value != value else seconds(value)


def _time(solves: pd.DataFrame) -> pd.Series[float]:
    """Processor seconds where they are known: what else the machine does does not count."""
    return solves["processor_seconds"].fillna(solves["seconds"]).clip(lower=_SHORTEST)


def _styles(oracles: Sequence[str]) -> dict[str, dict[str, Any]]:
    solvers = list(dict.fromkeys(name.partition(":")[0] for name in oracles))
    return {
        name: {
            "color": _COLOURS[solvers.index(name.partition(":")[0]) % len(_COLOURS)],
            "linestyle": "--" if name.endswith(":rows") else "-",
            "marker": "s" if name.endswith(":rows") else "o",
            "label": name,
        }
        for name in oracles
    }


def performance_profile(solves: pd.DataFrame) -> Figure:
    """Dolan and More (2002): for each factor, the share of instances solved within it of the fastest."""
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    times = _time(solves).where(solves["status"] == SOLVED, np.inf)
    best = times.groupby([solves[k] for k in INSTANCE]).transform("min")
    ratios = (times / best).where(np.isfinite(best), np.inf)
    count = solves.groupby(INSTANCE).ngroups
    last = 2 * max(10.0, float(ratios[np.isfinite(ratios)].max()))
    styles = _styles(list(dict.fromkeys(solves["oracle"])))
    for oracle, style in styles.items():
        mine = np.sort(ratios[(solves["oracle"] == oracle) & np.isfinite(ratios)].to_numpy(dtype=float))
        share = np.arange(1, len(mine) + 1) / count
        end = share[-1] if len(share) else 0.0
        line = {key: value for key, value in style.items() if key != "marker"}
        axes.step([1.0, *mine, last], [0.0, *share, end], where="post", linewidth=1.6, **line)
    axes.set(xscale="log", xlim=(1, last), ylim=(0, 1.02))
    axes.set(xlabel="time / time of the fastest oracle on the instance", ylabel="share of instances proved")
    _legend(figure, axes)
    return figure


def ladder(solves: pd.DataFrame, question: str) -> Figure:
    """Adult: time against the number of features, one panel for each number of records; open ones on top."""
    chosen = solves[(solves["data"] == "adult") & (solves["question"] == question) & (solves["epsilon"] == 1)]
    sizes = sorted(chosen["n"].unique())
    figure = Figure(figsize=(3.3 * len(sizes) + 1, 4.6), layout="constrained")
    panels = figure.subplots(1, len(sizes), sharey=True, squeeze=False)[0]
    ceiling = 3 * float(_time(chosen).max())
    styles = _styles(list(dict.fromkeys(solves["oracle"])))
    for axes, n in zip(panels, sizes, strict=True):
        for number, (oracle, style) in enumerate(styles.items()):
            mine = chosen[(chosen["oracle"] == oracle) & (chosen["n"] == n) & (chosen["status"] != "refused")]
            mine = mine.assign(time=_time(mine).where(mine["status"] == SOLVED, ceiling))
            times = mine.groupby("d")["time"].median()
            side = 1.012 ** (2 * number - len(styles))  # beside each other, not on top
            axes.plot(times.index * side, times.to_numpy(), linewidth=1.2, markersize=4, **style)
        axes.axhline(ceiling, color="0.6", linewidth=0.8, linestyle=":")
        axes.set(yscale="log", title=f"n = {n:,}", xlabel="features")
        axes.set_xticks(sorted(chosen["d"].unique()))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("seconds (dotted line: open at the limit)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    return figure


def gap_over_time(solves: pd.DataFrame, moments: pd.DataFrame) -> Figure:
    """The gap left, as a median over the instances that the oracle did not refuse, against the clock."""
    figure = Figure(figsize=(8, 5.4), layout="constrained")
    axes = figure.subplots()
    taken = solves[~solves["status"].isin(["refused", "failed", "died"])]
    grid = np.geomspace(0.02, max(0.1, float(taken["seconds"].max())), 60)
    styles = _styles(list(dict.fromkeys(solves["oracle"])))
    for oracle, style in styles.items():
        mine = moments[moments["oracle"] == oracle]
        curves = [_gaps(group, grid) for _, group in mine.groupby(INSTANCE)]
        if curves:
            line = {key: value for key, value in style.items() if key != "marker"}
            axes.plot(grid, np.median(curves, axis=0), linewidth=1.6, **line)
    axes.set(xscale="log", xlabel="seconds on the clock", ylabel="median gap, in errors")
    axes.set_yscale("symlog", linthresh=1.0)
    axes.set_ylim(bottom=0)
    _legend(figure, axes)
    return figure


def _gaps(trace: pd.DataFrame, grid: np.ndarray) -> np.ndarray:
    """The gap at each time of a grid; before the first news as large as it was then."""
    trace = trace.sort_values("seconds")
    gaps = np.minimum.accumulate((trace["incumbent"] - trace["bound"]).fillna(np.inf).to_numpy())
    index = np.searchsorted(trace["seconds"].to_numpy(), grid, side="right") - 1
    return np.asarray(np.where(np.isfinite(found := gaps[np.maximum(index, 0)]), found, 1e9))


def _legend(figure: Figure, axes: Axes) -> None:
    axes.grid(alpha=0.3)
    figure.legend(
        *axes.get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=9, frameon=False
    )


def reach(solves: pd.DataFrame) -> pd.DataFrame:
    """Adult at epsilon 1: for each oracle and number of records, the most features that it proved all of."""
    chosen = solves[(solves["data"] == "adult") & (solves["epsilon"] == 1) & (solves["status"] != "refused")]
    lines = []
    for (oracle, question), group in chosen.groupby(["oracle", "question"], sort=False):
        line: dict[str, object] = {"oracle": oracle, "question": question}
        for n in sorted(chosen["n"].unique()):
            sizes = group[group["n"] == n].groupby("d")["status"].agg(lambda s: (s == SOLVED).all())
            line[f"n = {n:,}"] = max((d for d, done in sizes.items() if done), default="none")
        lines.append(line)
    return pd.DataFrame(lines)


def ratios(solves: pd.DataFrame, one: str, other: str) -> dict[str, float]:
    """Medians, over instances that both proved, of one oracle's seconds over another's."""
    proved = solves[solves["status"] == SOLVED].set_index(INSTANCE)
    a, b = (proved[proved["oracle"] == name] for name in (one, other))
    common = a.merge(b, left_index=True, right_index=True, suffixes=("_a", "_b"))
    found = {"instances": float(len(common))}
    for key in ("seconds", "processor_seconds", "build_seconds"):
        found[key] = float((common[f"{key}_a"] / common[f"{key}_b"].clip(lower=1e-6)).median())
    return found


def facts(limit: float) -> pd.DataFrame:
    """Machine and versions."""
    lines = {"machine": machine(), "time limit": f"{limit:g} processor seconds"}
    for name in _LIBRARIES:
        try:
            lines[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines[name] = "not installed"
    return pd.DataFrame({"what": list(lines), "which": list(lines.values())})


def parts(solves: pd.DataFrame, moments: pd.DataFrame, limit: float) -> list[Section]:
    """The sections of the page."""
    wrong = disagreements(solves)
    whose = "" if wrong.empty else ": see the last table"
    words = (
        f"{len(solves):,} solves of {solves.groupby(INSTANCE).ngroups} instances. Contradictions between "
        f"proofs: {len(wrong)}{whose}. Times are processor seconds where the system tells them, on one "
        f"thread, of at most {limit:g} for each solve."
    )
    found: list[Section] = [
        ("In short", [words, Listing(certified(solves, limit), "What each oracle proved within the limit.")]),
        (
            "Who is how often how much slower",
            [
                Picture(
                    performance_profile(solves),
                    "Performance profile (Dolan and More, 2002): at 1 the share of instances on which an "
                    "oracle was the fastest, at the right end the share that it proved. Dashed: row models.",
                )
            ],
        ),
    ]
    if (solves["data"] == "adult").any():
        pictures: list[Part] = [
            Picture(ladder(solves, question), f"Adult, {question}, epsilon 1: time against features.")
            for question in ("rspm", "opdisc")
            if (
                (solves["data"] == "adult") & (solves["question"] == question) & (solves["epsilon"] == 1)
            ).any()
        ]
        pictures.append(
            Listing(reach(solves), "The most features that were proved, for each number of records.")
        )
        found.append(("Where rows stop and cells go on", pictures))
    pairs = [(f"pulp-highs:{model}", f"highs:{model}") for model in ("rows", "cells")]
    if compared := [pair for pair in pairs if set(pair) <= set(solves["oracle"])]:
        lines = [{"": f"{one} / {other}", **ratios(solves, one, other)} for one, other in compared]
        caption = "Medians, over instances that both proved, of PuLP's seconds over those of HiGHS alone."
        found.append(("HiGHS through PuLP, and directly", [Listing(pd.DataFrame(lines), caption)]))
    if len(moments):
        picture = Picture(gap_over_time(solves, moments), "How fast the gap closes.")
        found.append(("Gap over time", [picture]))
    found.append(("Machine and versions", [Listing(facts(limit), "Where this was measured.")]))
    if len(wrong):
        found.append(("Contradictions", [Listing(wrong, "Bounds above a value that somebody reached.")]))
    return found


def html(sections: Sequence[Section]) -> str:
    """The whole page, self-contained."""
    return page("Oracles compared", sections)


def write_markdown(folder: Path, sections: Sequence[Section]) -> None:
    """``report.md`` with the tables, and its pictures beside it."""
    lines, pictures = ["# Oracles compared"], 0
    for heading, contents in sections:
        lines.append(f"## {heading}")
        for part in contents:
            if isinstance(part, Picture):
                pictures += 1
                save(part.figure, folder / f"report-{pictures}.png")
                lines += [f"![{part.caption}](report-{pictures}.png)", part.caption]
            elif isinstance(part, Listing):
                lines += [markdown(part.frame), part.caption]
            else:
                lines.append(part)
    write_atomically(folder / "report.md", "\n\n".join(lines) + "\n")

"""Report of a benchmark of oracles: profiles, times by size, gaps over time, disagreements; one HTML page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from privopt.experiments.comparison.race import SOLVED
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.palette import SERIES
from privopt.experiments.workbench.panels import MOST_CURVES, Curve, Panel, panels_figure
from privopt.experiments.workbench.report import Listing, Part, Picture, page
from privopt.experiments.workbench.resumable import machine, markdown, seconds
from privopt.problems.files import write_atomically

Section = tuple[str, list[Part]]
INSTANCE = ["data", "n", "d", "question", "epsilon", "draw"]
# A bound proved in floating point contradicts a value only if it is larger by more than this, in errors.
_TOLERANCE = 1e-4
_SHORTEST = 1e-3  # seconds; shorter times are raised to it
_LIBRARIES = ("privopt", "numpy", "pulp", "highspy", "ortools", "pyscipopt", "numba", "scipy")


def disagreements(solves: pd.DataFrame) -> pd.DataFrame:
    """Return the solves whose bound contradicts the value of any oracle on the instance. There must be none.

    A lower bound above an attained value is wrong. Bounds proved in integers have no tolerance.
    """
    known = solves.assign(slack=np.where(solves["exact"], 0.0, _TOLERANCE))
    groups = known.groupby(INSTANCE, sort=False)
    least = groups["value"].transform("min")
    return solves[(known["bound"] - known["slack"] > least).to_numpy()]


def certified(solves: pd.DataFrame, limit: float) -> pd.DataFrame:
    """Tabulate, for each oracle, the instances accepted and proved, and its times."""
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
    """Return the median time over all instances; unproved ones count as infinite."""
    times = np.where(group["status"] == SOLVED, _time(group), np.inf)
    middle = float(np.median(times))
    return _words(middle) if math.isfinite(middle) else "not within the limit"


def _words(value: float) -> str:
    return "" if value != value else seconds(value)


def _time(solves: pd.DataFrame) -> pd.Series[float]:
    """Return processor seconds if known, else wall-clock seconds."""
    return solves["processor_seconds"].fillna(solves["seconds"]).clip(lower=_SHORTEST)


def _groups(solves: pd.DataFrame) -> dict[str, list[str]]:
    """Return the names of the oracles of each panel, by its title.

    Models of rows have separate panels, which show the native search too, for comparison.
    """
    names = list(dict.fromkeys(solves["oracle"]))
    rows = [name for name in names if name.endswith(":rows")]
    cells = [name for name in names if name not in rows]
    found = {}
    first = "Searches over cells" if rows else "All oracles"
    for title, group in ((first, cells), ("Models of rows", rows)):
        beside = ["native"] if group is rows and "native" in names else []
        width = MOST_CURVES - len(beside)
        for start in range(0, len(group), width):
            more = f", {start // width + 1}" if len(group) > width else ""
            found[title + more] = beside + group[start : start + width]
    return found


def _colours(solves: pd.DataFrame) -> dict[str, str]:
    """Return one colour per solver, the same for all of its models."""
    names = list(dict.fromkeys(solves["oracle"]))
    solvers = list(dict.fromkeys(name.partition(":")[0] for name in names))
    return {name: SERIES[solvers.index(name.partition(":")[0]) % len(SERIES)] for name in names}


def _points(x: Any, y: Any) -> pd.DataFrame:
    return pd.DataFrame({"mean": np.asarray(y, dtype=float), "std": 0.0}, index=np.asarray(x, dtype=float))


def performance_profile(solves: pd.DataFrame) -> Figure:
    """Draw performance profiles (Dolan and More 2002): the share solved within a factor of the fastest."""
    times = _time(solves).where(solves["status"] == SOLVED, np.inf)
    best = times.groupby([solves[k] for k in INSTANCE]).transform("min")
    ratios = (times / best).where(np.isfinite(best), np.inf)
    count = solves.groupby(INSTANCE).ngroups
    last = 2 * max(10.0, float(ratios[np.isfinite(ratios)].max()))
    colours = _colours(solves)
    curves = {}
    for oracle, colour in colours.items():
        mine = np.sort(ratios[(solves["oracle"] == oracle) & np.isfinite(ratios)].to_numpy(dtype=float))
        share = np.arange(1, len(mine) + 1) / count
        points = _points([1.0, *mine, last], [0.0, *share, share[-1] if len(share) else 0.0])
        curves[oracle] = Curve(oracle, colour, points, spread="none", steps=True)
    labels = ("time / time of the fastest oracle on the instance", "share of instances proved")
    return panels_figure(
        [
            Panel(title, *labels, [curves[name] for name in names], ylim=(0.0, 1.02))
            for title, names in _groups(solves).items()
        ]
    )


def ladder(solves: pd.DataFrame, question: str) -> Figure:
    """Draw time against the number of features on Adult, a panel per number of records; unsolved on top."""
    chosen = solves[(solves["data"] == "adult") & (solves["question"] == question) & (solves["epsilon"] == 1)]
    ceiling = 3 * float(_time(chosen).max())
    colours, panels = _colours(solves), []
    for n in sorted(chosen["n"].unique()):
        for title, names in _groups(solves).items():
            curves = []
            for oracle in names:
                mine = chosen[(chosen["oracle"] == oracle) & (chosen["n"] == n)]
                mine = mine[mine["status"] != "refused"]
                if len(mine):
                    mine = mine.assign(time=_time(mine).where(mine["status"] == SOLVED, ceiling))
                    times = mine.groupby("d")["time"].median()
                    curves.append(Curve(oracle, colours[oracle], _points(times.index, times)))
            labels = (f"n = {n:,}: {title.lower()}", "features", "seconds")
            limits = (_SHORTEST, 2 * ceiling)
            levels = {"open at the limit": ceiling}
            panels.append(Panel(*labels, curves, "linear", "log", levels=levels, ylim=limits))
    return panels_figure(panels)


def gap_over_time(solves: pd.DataFrame, moments: pd.DataFrame) -> Figure:
    """Draw each oracle's median gap over time on the clock, of instances where it reported progress."""
    taken = solves[~solves["status"].isin(["refused", "failed", "died"])]
    grid = np.geomspace(0.02, max(0.1, float(taken["seconds"].max())), 60)
    curves = {}
    for oracle, colour in _colours(solves).items():
        mine = moments[moments["oracle"] == oracle]
        gaps = [_gaps(group, grid) for _, group in mine.groupby(INSTANCE)]
        if gaps:
            curves[oracle] = Curve(oracle, colour, _points(grid, np.median(gaps, axis=0)), spread="none")
    labels = ("seconds on the clock", "median gap, in errors")
    top = 1.0 + 2 * max((float(c.points["mean"].max()) for c in curves.values()), default=0.0)
    return panels_figure(
        [
            Panel(title, *labels, [curves[k] for k in names if k in curves], yscale="symlog", ylim=(0.0, top))
            for title, names in _groups(solves).items()
        ]
    )


def _gaps(trace: pd.DataFrame, grid: np.ndarray) -> np.ndarray:
    """Return the gap at each time of a grid; before the first report, the first gap."""
    trace = trace.sort_values("seconds")
    gaps = np.minimum.accumulate((trace["incumbent"] - trace["bound"]).fillna(np.inf).to_numpy())
    index = np.searchsorted(trace["seconds"].to_numpy(), grid, side="right") - 1
    return np.asarray(np.where(np.isfinite(found := gaps[np.maximum(index, 0)]), found, 1e9))


def reach(solves: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the largest number of features at which an oracle proved all instances, Adult at epsilon 1."""
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
    """Return the median ratios of two oracles' seconds, over instances that both proved."""
    proved = solves[solves["status"] == SOLVED].set_index(INSTANCE)
    a, b = (proved[proved["oracle"] == name] for name in (one, other))
    common = a.merge(b, left_index=True, right_index=True, suffixes=("_a", "_b"))
    found = {"instances": float(len(common))}
    for key in ("seconds", "processor_seconds", "build_seconds"):
        found[key] = float((common[f"{key}_a"] / common[f"{key}_b"].clip(lower=1e-6)).median())
    return found


def facts(limit: float) -> pd.DataFrame:
    """Tabulate the machine and versions."""
    lines = {"machine": machine(), "time limit": f"{limit:g} processor seconds"}
    for name in _LIBRARIES:
        try:
            lines[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            lines[name] = "not installed"
    return pd.DataFrame({"what": list(lines), "which": list(lines.values())})


def parts(solves: pd.DataFrame, moments: pd.DataFrame, limit: float) -> list[Section]:
    """Write the sections of the page."""
    wrong = disagreements(solves)
    whose = "" if wrong.empty else ": see the last table"
    words = (
        f"{len(solves):,} solves of {solves.groupby(INSTANCE).ngroups} instances. Contradictions between "
        f"proofs: {len(wrong)}{whose}. Times are processor seconds (wall-clock seconds where the "
        f"system does not report them), on one thread; the limit of a solve is {limit:g} processor seconds."
    )
    found: list[Section] = [
        ("In short", [words, Listing(certified(solves, limit), "What each oracle proved within the limit.")]),
        (
            "How often, and by how much, each oracle is slower than the fastest",
            [
                Picture(
                    performance_profile(solves),
                    "Performance profile (Dolan and More, 2002): at 1 the share of instances on which an "
                    "oracle was the fastest, at the right end the share that it proved.",
                )
            ],
        ),
    ]
    if (solves["data"] == "adult").any():
        found.append(_growing_adult(solves))
    found += _pulp_and_highs(solves)
    if len(moments):
        picture = Picture(gap_over_time(solves, moments), "How fast the gap closes.")
        found.append(("Gap over time", [picture]))
    found.append(("Machine and versions", [Listing(facts(limit), "Where this was measured.")]))
    if len(wrong):
        found.append(("Contradictions", [Listing(wrong, "Bounds above a value that an oracle attained.")]))
    return found


def _growing_adult(solves: pd.DataFrame) -> Section:
    """Write the section on Adult with more and more features."""
    adult = solves[(solves["data"] == "adult") & (solves["epsilon"] == 1)]
    pictures: list[Part] = [
        Picture(ladder(solves, question), f"Adult, {question}, epsilon 1: time against features.")
        for question in ("rspm", "opdisc")
        if (adult["question"] == question).any()
    ]
    caption = (
        "The largest number of features at which an oracle proved all of its instances, for each number of "
        "records."
    )
    heading = (
        "Adult with more and more features: models with a prediction per record, and searches over cells "
        "(groups of records)"
    )
    return heading, [*pictures, Listing(reach(solves), caption)]


def _pulp_and_highs(solves: pd.DataFrame) -> list[Section]:
    """Write the section that compares HiGHS through PuLP with HiGHS, if both ran."""
    pairs = [(f"pulp-highs:{model}", f"highs:{model}") for model in ("rows", "cells")]
    compared = [pair for pair in pairs if set(pair) <= set(solves["oracle"])]
    if not compared:
        return []
    lines = [{"": f"{one} / {other}", **ratios(solves, one, other)} for one, other in compared]
    caption = "Medians, over instances that both proved, of PuLP's seconds over those of HiGHS alone."
    return [("HiGHS through PuLP, and directly", [Listing(pd.DataFrame(lines), caption)])]


def html(sections: Sequence[Section]) -> str:
    """Write the report as one self-contained HTML page."""
    return page("Benchmark of oracles", sections)


def write_markdown(folder: Path, sections: Sequence[Section]) -> None:
    """Write ``report.md`` with the tables, and its figures as files."""
    lines, pictures = ["# Benchmark of oracles"], 0
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

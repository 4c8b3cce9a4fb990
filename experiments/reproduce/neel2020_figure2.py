"""Neel, Roth, Vietri and Wu (2020), Figure 2: run times of Figure 1."""

from __future__ import annotations

import numpy as np
import pandas as pd

from privopt.experiments.reproduce import neel2020_figure1 as accuracy
from privopt.experiments.reproduce.interface import Agreement, Reproduction, Verdict, held
from privopt.experiments.workbench.drawing import Figure, ticker
from privopt.experiments.workbench.figures import colour

_CURVES = {accuracy.OPDISC: "opdisc", accuracy.RSPM: "rspm", accuracy.LR: "dp-sgd"}


def _seconds(frame: pd.DataFrame) -> dict[str, np.ndarray]:
    """Return run times by curve, with printed noise as in the paper."""
    here = frame[(frame["measure"] == "seconds") & (frame["panel"] == accuracy.PRINTED)]
    return {name: here.loc[here["curve"] == name, "value"].to_numpy() for name in _CURVES}


def draw(frame: pd.DataFrame) -> Figure:
    times = _seconds(frame)
    figure = Figure(figsize=(7, 5.2), layout="constrained")
    every = np.concatenate(list(times.values()))
    edges = np.geomspace(every.min() / 1.05, every.max() * 1.05, 25)
    rows = figure.subplots(len(times), 1, sharex=True)
    for axes, (name, seconds) in zip(rows, times.items(), strict=True):
        axes.hist(seconds, bins=edges.tolist(), color=colour(_CURVES[name]), alpha=0.8)
        axes.axvline(float(np.median(seconds)), color="0.3", linestyle="--", linewidth=1)
        axes.set_title(
            f"{name}: median {np.median(seconds):.3g} s, longest {seconds.max():.3g} s",
            fontsize=10,
            loc="left",
        )
        axes.set(xscale="log", ylabel="runs")
        axes.yaxis.set_major_locator(ticker.MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    rows[-1].set_xlabel("seconds of one run")
    rows[-1].xaxis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
    rows[-1].xaxis.set_major_formatter(lambda seconds, _: f"{seconds:g}")
    rows[-1].minorticks_off()
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "method": name,
            "runs": len(seconds),
            "median, s": float(np.median(seconds)),
            "95th percentile, s": float(np.quantile(seconds, 0.95)),
            "longest, s": float(seconds.max()),
            "longest / median": float(seconds.max() / np.median(seconds)),
        }
        for name, seconds in _seconds(frame).items()
    )


def verdicts(frame: pd.DataFrame) -> list[Verdict]:
    times = _seconds(frame)
    counts = frame[frame["measure"] == "seconds"].groupby(["panel", "curve", "level"]).size()
    solved = counts.loc[[accuracy.PRINTED], [accuracy.OPDISC, accuracy.RSPM]]
    opdisc, baseline = times[accuracy.OPDISC], times[accuracy.LR]
    quicker = float(np.mean(opdisc < np.median(baseline)))
    ratio = float(opdisc.max() / np.median(opdisc))
    other = float(baseline.max() / np.median(baseline))
    return [
        Verdict(
            "OPDisc often ends sooner than the logistic regression",
            Agreement.YES if quicker > 0.5 else Agreement.PARTLY if quicker > 0 else Agreement.NO,
            f"{100 * quicker:.0f}% of the runs of OPDisc are shorter than the median run of DP-SGD, "
            "whose search for the best settings is not counted.",
        ),
        Verdict(
            "The time of OPDisc varies much, and some runs are long",
            Agreement.YES if ratio > 10 else Agreement.PARTLY if ratio > 2 * other else Agreement.NO,
            f"Its longest run takes {ratio:.1f} times as long as its median run, DP-SGD's {other:.1f} times.",
        ),
        Verdict(
            "Every integer program was solved in the end",
            held(int((solved == counts.max()).sum()), len(solved)),
            f"{solved.sum()} minimisers were proved optimal: nothing else is released.",
        ),
    ]


def setting(quick: bool) -> str:
    return (
        "The runs of Figure 1 with printed noise, all ε together. The solver is privopt's exact search, and "
        "not Gurobi as in the paper. Several processes ran at a time, so that only ratios of times mean "
        "something. The records are prepared once, and this time is not counted."
    )


FIGURE = Reproduction(
    name="neel2020-figure2",
    paper=accuracy.PAPER,
    cite=accuracy.CITE,
    figure="Figure 2, distribution of run time",
    shows=(
        "A histogram of running times: the integer programs of OPDisc and RSPM often end sooner than the "
        "logistic regression, vary much, and now and then take long; all were solved."
    ),
    setting=setting,
    cells=accuracy.cells,
    compute=accuracy.compute,
    draw=draw,
    caption="Running times of single runs, on a logarithmic axis. Dashed: the median.",
    table=table,
    verdicts=verdicts,
    measured_by=accuracy.FIGURE.name,
)

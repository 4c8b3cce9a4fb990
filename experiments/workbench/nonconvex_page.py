"""Tables and numbers of the page that ``privopt.experiments.nonconvex`` fills."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from privopt.experiments.workbench.pages import filled, markdown_table
from privopt.experiments.workbench.resumable import machine


def page(rows: pd.DataFrame, wanted: Mapping[str, float]) -> str:
    """Return the page, ``experiments/docs/nonconvex.md``, with the tables and numbers of a run."""
    places = {"machine": machine(), "figures": f"{len(rows):,}"}
    for part in (_excess, _later, _regression, _speed):
        places |= part(rows)
    return filled("nonconvex", places | _saddles(rows, wanted))


def _saddles(rows: pd.DataFrame, wanted: Mapping[str, float]) -> dict[str, str]:
    some = rows[rows["part"] == "saddle"]
    lines = []
    for (problem, name, n), group in some.groupby(["problem", "mechanism", "records"], sort=False):
        if n not in (5_000, 20_000, 200_000) and name != "dp-gd-so":
            continue
        draws = group.pivot_table(index="draw", columns="measure", values="value")
        middle = draws.median()
        found = draws[draws["found"] == 1] if "found" in draws else draws[:0]
        lines.append(
            {
                "problem": problem,
                "mechanism": name,
                "n": f"{n:,}",
                "left": f"{draws['left'].mean():.0%}",
                "found": f"{len(found)} of {len(draws)}" if "found" in draws else "",
                "of these true": f"{found['true'].sum():.0f}" if "found" in draws else "",
                **{key: _number(middle.get(key)) for key in ("alpha", "gamma", "gradient")},
                "least curvature": f"{middle['curvature']:.3f}",
                "excess": _number(middle["excess"]),
                "T": _whole(middle.get("steps")),
            }
        )
    claims = some[some["measure"] == "true"].merge(
        some[some["measure"] == "found"], on=["problem", "mechanism", "records", "draw"]
    )
    made = claims[claims["value_y"] == 1]
    kept = f"{int(made['value_x'].sum()):,} of {len(made):,} claims"
    asked = ", ".join(f"{n:,.0f} ({name})" for name, n in wanted.items())
    runs = int(some["draw"].max()) + 1
    return {
        "runs": f"{runs}",
        "constrained-runs": f"{(runs + 1) // 2}",
        "asked": asked,
        "saddles": markdown_table(pd.DataFrame(lines)),
        "claims": kept,
    }


def _excess(rows: pd.DataFrame) -> dict[str, str]:
    some = rows[rows["part"] == "excess"]
    sizes = some["records"].mode()[0]
    lines = []
    for name, group in some.groupby("mechanism", sort=False):
        at_one = group[group["epsilon"] == 1].groupby("records")["value"].median()
        at_n = group[group["records"] == sizes].groupby("epsilon")["value"].median()
        shown = {f"n = {n:,}": _number(at_one[n]) for n in at_one.index[:: max(1, len(at_one) // 3)]}
        slopes = {"slope in n": _slope(at_one), "slope in epsilon": _slope(at_n)}
        lines.append({"mechanism": name, **shown, **slopes})
    return {"excess": markdown_table(pd.DataFrame(lines))}


def _slope(values: pd.Series[float]) -> str:
    if len(values) < 2:
        return ""
    return f"{np.polyfit(np.log(values.index.to_numpy(dtype=float)), np.log(values.to_numpy()), 1)[0]:.2f}"


def _later(rows: pd.DataFrame) -> dict[str, str]:
    some = rows[rows["part"] == "later"]
    ahead = "; ".join(f"{count}" for count in _ahead(some).values())
    gradients = some[some["measure"] == "gradient"]
    middle = gradients.groupby(["problem", "records", "mechanism"], sort=False)["value"].median().unstack()
    shortest = f"{int((middle.idxmin(axis=1) == 'dp-spider').sum())} of {len(middle)}"
    return {
        "gradients": markdown_table(_best(some, "gradient")),
        "risks": markdown_table(_best(some, "risk")),
        "ahead": ahead,
        "shortest": shortest,
    }


def _ahead(some: pd.DataFrame) -> dict[str, str]:
    """Count cases where the overall best setting of a grid has smaller gradients than all defaults."""
    some = some[some["measure"].str.startswith("gradient")]
    middle = some.groupby(["mechanism", "measure", "problem", "records"], sort=False)["value"].median()
    overall = np.log(middle).groupby(level=[0, 1], sort=False).mean()
    single = [name for name in dict.fromkeys(some["mechanism"]) if len(overall[name]) == 1]
    least = middle[middle.index.isin(single, level=0)].groupby(level=[2, 3], sort=False).min()
    grids = [name for name in dict.fromkeys(some["mechanism"]) if name not in single]
    wins = {name: int((middle[name][overall[name].idxmin()] < least).sum()) for name in grids}
    return {name: f"{count} of {len(least)}" for name, count in wins.items()}


def _best(some: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Tabulate medians per problem and n; for a grid, of the best setting there (and of the overall best)."""
    some = some[some["measure"].str.startswith(measure)]
    middle = some.groupby(["mechanism", "measure", "problem", "records"], sort=False)["value"].median()
    overall = np.log(middle).groupby(level=[0, 1], sort=False).mean()
    lines = []
    for problem, n in dict.fromkeys(zip(some["problem"], some["records"], strict=True)):
        cells = {"problem": problem, "n": f"{n:,}"}
        for name in dict.fromkeys(some["mechanism"]):
            grid = middle[name]
            fixed = grid[overall[name].idxmin(), problem, n]
            best = min(grid[kind, problem, n] for kind in overall[name].index)
            one = len(overall[name]) == 1
            cells[name] = _number(fixed) if one else f"{_number(best)} ({_number(fixed)})"
        lines.append(cells)
    return pd.DataFrame(lines)


def _regression(rows: pd.DataFrame) -> dict[str, str]:
    some = rows[rows["part"] == "regression"]
    lines = []
    for (problem, epsilon), group in some.groupby(["problem", "epsilon"], sort=False):
        start = group[group["measure"] == "start"]["value"].median()
        cells = {"loss, ball": str(problem), "epsilon": f"{epsilon:g}", "start": _number(start)}
        for name, one in group.groupby("mechanism", sort=False):
            excess = one[one["measure"] == "excess"]["value"]
            cells[str(name)] = f"{excess.mean():.4f} ± {excess.std():.4f}"
            cells[f"T, {name}"] = _whole(one[one["measure"] == "steps"]["value"].median())
        lines.append(cells)
    return {"regression": markdown_table(pd.DataFrame(lines))}


def _speed(rows: pd.DataFrame) -> dict[str, str]:
    table = rows[rows["part"] == "speed"]
    if table.empty:
        return dict.fromkeys(("speed", "speed-records", "minima"), "not measured")
    some = table.set_index("measure")["value"]
    pairs = (
        ("Hessian, in blocks", "X'DX by BLAS, D X made for it"),
        ("Hessian, in blocks", "X'X by BLAS"),
        ("a step of dp-gld", "a step of dp-gd"),
        ("a step of dp-newton", "a step of dp-gd"),
        ("a step of dp-spider", "a step of dp-gd"),
    )
    lines = [{"what": f"{a} / {b}", "ratio": f"{some[a] / some[b]:.2f}"} for a, b in pairs]
    quadratics = ("quadratic over a ball, d = 100", "the same with a half-space")
    times = ", ".join(f"{name} {some[name]:.2f} ms" for name in quadratics)
    return {
        "speed": markdown_table(pd.DataFrame(lines)),
        "speed-records": f"{table['records'].iloc[0]:,}",
        "minima": times,
    }


def _number(value: object) -> str:
    if not isinstance(value, float) or value != value:
        return ""
    return "0" if abs(value) < 1e-12 else f"{value:.2g}"


def _whole(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value == value else ""

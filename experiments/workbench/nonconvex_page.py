"""The page that ``privopt.experiments.nonconvex`` writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from privopt.experiments.workbench.pages import markdown_table
from privopt.experiments.workbench.resumable import machine

_WHAT = """\
# Minimising without convexity

Mechanisms for smooth risks that need not be convex, in `privopt.mechanisms.nonconvex`; the paper behind
them is Wang, Chen and Xu (2019). Losses: `sigmoid` and `biweight` by name; `SigmoidSquaredLoss` and
`ProbitSquaredLoss` (generalised linear models) and your own in Python. Neighbours: replace-one, n public,
everywhere. Figures come from `python -m privopt.experiments.nonconvex --output FOLDER`.

## Which one
"""

_NAMES = (
    (
        *("`dp-gld`", "gradient Langevin dynamics; the privacy noise is the diffusion"),
        "in the limit of small steps and long time, a draw of density exp(-beta F)",
        "several minima, any of the good ones will do",
    ),
    (
        *("`net`", "the exponential mechanism on an alpha-net of a ball; pure epsilon-DP"),
        "`plan.excess(q)` bounds the excess risk, but with probability q",
        "up to three dimensions",
    ),
    (
        *("`dp-sosp`", "noisy gradient descent, then a search of its trajectory from the end"),
        "what is marked `found` is an (alpha, gamma)-SOSP, but with probability `failure` = 0.05",
        "many features, cheap gradients",
    ),
    (
        *("`dp-newton`", "some 20 to 50 noisy cubic Newton steps"),
        "the same",
        "up to some hundred features; few passes over the data",
    ),
    (
        *("`dp-spider`", "noisy descent, then one noisy gradient carried along by noisy differences"),
        "nothing: theorems bound the gradient at a random iterate, and this is the last",
        "minima are well curved, or a gradient is to be short",
    ),
    (
        *("`dp-gd-so`", "Frank-Wolfe steps, and steps along negative curvature, in a set"),
        "the same, relative to the set",
        "the constraint is part of the problem, and n is large",
    ),
)

_USE = """
They are reached like every other mechanism: `PrivateSigmoidClassifier(mechanism="dp-newton")`, `privopt fit
--loss sigmoid --mechanism dp-sosp`, `privopt calibrate`, `privopt audit`. Certificates (`found`, the
tests) are on the release of a plan:

```python
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.problems.nonconvex.planted import phase_retrieval

risk = phase_retrieval(20_000, 3).risk
plan = DPCubicNewton.plan(risk.facts, epsilon=1.0, delta=1e-9)
released = plan.release(risk)
print(released.found, plan.alpha, plan.gamma, released.tests[-1].curvature)
```

w is an (alpha, gamma)-SOSP, a second-order stationary point, where |grad F| <= alpha and the Hessian has no
eigenvalue below -gamma; for an alpha-SOSP gamma = sqrt(rho alpha), rho the Lipschitz constant of one
record's Hessian. A point is marked only where noisy gradient and Hessian leave no doubt, up to tails of
the noise that are exceeded with probability `failure`; not found is an answer. `gamma` is by default the
least curvature that noise lets see and the steps leave behind, mostly less than sqrt(rho alpha).
"""

_ERRATA = """\
## What differs from the papers

- *Noise.* Exact accounting: all gradients and Hessians of a run are one Gaussian release, split by
  `hessian_share`. One record's Hessian of a linear model has rank one, so that its Frobenius norm is at
  most M, not sqrt(d) M as printed.
- *DP-GLD.* The listing omits the regulariser of equation (1), which is meant as (lambda/2)|w|^2 and is here
  ([errata.md](errata.md)).
- *Selection* (Algorithm 5) returns the first iterate that passes. Near a saddle whose curvature is less
  than sqrt(rho alpha) that is the start, so all steps are made, which are paid for anyway, and the
  trajectory is searched from its end.
- *DP-GD-SO* (Algorithm 6): printed constants are partly illegible; ours are derived in `constrained.py`. It
  goes on after a point that passes, and answers with the last.
- *Rates.* Theorem 7 asks for n of the order of sqrt(d) / (epsilon alpha^2). For population risk Ganesh,
  Liu, Oh and Thakurta (2023) claimed alpha of order n^(-1/3) + (sqrt(d) / (n epsilon))^(3/7); an issue was
  found in their escape from saddles, which weakens it. Liu and Talwar (2024, "Adaptive batch size for
  privately finding second-order stationary points") correct that and prove n^(-1/3) + (sqrt(d) / (n
  epsilon))^(1/2), up to logarithms, as for first-order points at the time. Their algorithm is not here.
- *SPIDER.* One phase after the warm start: an anchor's noise is paid for once, and differences shrink with
  the steps. The warm start is noisy descent; Lowy, Ullman and Wright (2024) take any private method that
  makes F small, for risks without structure the exponential mechanism.
- *Newton.* dp-newton is the cubic method of Ganesh, Haghifam, Steinke and Thakurta (2023), whose analysis
  is for strongly convex risks. Without convexity nothing is proved of its steps; what is claimed of a
  point is tested, and does not depend on how it was reached.
"""


def page(rows: pd.DataFrame, wanted: Mapping[str, float], quick: bool, missing: Sequence[str]) -> str:
    """Write the page in Markdown."""
    columns = ["name", "what it does", "what it promises beside privacy", "when"]
    lines = [" | ".join(("", *row, "")).strip() for row in (columns, ["---"] * 4, *_NAMES)]
    short = ["**A quick run: few draws of few settings.**\n"] if quick else []
    return "\n".join(
        [
            *(_WHAT, "\n".join(lines), _USE, *short, *(f"- not measured: {line}" for line in missing)),
            *(_saddles(rows, wanted), _excess(rows), _later(rows), _regression(rows), _speed(rows)),
            *(_ERRATA, _how(rows)),
        ]
    )


def _saddles(rows: pd.DataFrame, wanted: Mapping[str, float]) -> str:
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
    return f"""\
## Leaving a saddle

![ways out of a saddle](nonconvex-trajectories.png)

*A quartic with minima (stars) at (±1, 0) and a saddle between them, epsilon = 1, n = 5,000. Without noise,
gradient descent from (0, 1.1) creeps into the saddle. From the saddle noise carries descent away in a few
dozen steps; Newton's method leaves in the first ones.*

![excess risk of runs from a saddle](nonconvex-escape.png)

*What is left of F above its least value, {runs} runs from an exact saddle (dp-gd-so: {(runs + 1) // 2}, in
a ball), median and quartiles, epsilon = 1, delta = 1e-6, every mechanism at its defaults. The black line
is the saddle, where a run without noise stays; but at the saddle of the sigmoid problem the gradient is
3e-18, not 0, and 2,000 steps make something of that. Grey dashes: the n of theorem 7 for alpha =
curvature^2 / rho, with its constant and logarithm of d set to 1: {asked}. From there on the theory asks
for nearly all runs to leave.*

{markdown_table(pd.DataFrame(lines))}

*Medians. Left: the share of runs that end at least half of the way down from the saddle. Of these true: of
the points marked found, those where exact gradient and Hessian agree, {kept} in all; 95% were promised. For
dp-gd-so the check is over all moves in the ball that do not climb, by the ball oracle, and alpha and gamma
are in units of moves across the ball: alpha over its diameter and gamma over the square of it are what
compares with the others. Gradient, curvature and excess are exact functions of the data, and not private.*
"""


def _excess(rows: pd.DataFrame) -> str:
    some = rows[rows["part"] == "excess"]
    sizes = some["records"].mode()[0]
    lines = []
    for name, group in some.groupby("mechanism", sort=False):
        at_one = group[group["epsilon"] == 1].groupby("records")["value"].median()
        at_n = group[group["records"] == sizes].groupby("epsilon")["value"].median()
        shown = {f"n = {n:,}": _number(at_one[n]) for n in at_one.index[:: max(1, len(at_one) // 3)]}
        slopes = {"slope in n": _slope(at_one), "slope in epsilon": _slope(at_n)}
        lines.append({"mechanism": name, **shown, **slopes})
    return f"""\
## Excess risk

![excess risk against n and epsilon](nonconvex-excess.png)

*Two classes in the plane, one of them in two lumps: sigmoid loss, ridge 0.01, delta = 1/n^2; excess of the
penalised empirical risk over its least value; last iterates, median and quartiles.*

{markdown_table(pd.DataFrame(lines))}

*Median excess at epsilon = 1, and slopes of least squares in logarithms. The theory asks for falling
curves: of slope -1 in both for the net (theorem 4: d / (n epsilon)), for Langevin dynamics of some power
between 0 and -2/3 (theorem 3; theorem 2 has 1/log n). These are bounds over all risks; here curves may
fall faster.*
"""


def _slope(values: pd.Series[float]) -> str:
    if len(values) < 2:
        return ""
    return f"{np.polyfit(np.log(values.index.to_numpy(dtype=float)), np.log(values.to_numpy()), 1)[0]:.2f}"


def _later(rows: pd.DataFrame) -> str:
    some = rows[rows["part"] == "later"]
    ahead = "; ".join(f"{count}" for count in _ahead(some).values())
    gradients = some[some["measure"] == "gradient"]
    middle = gradients.groupby(["problem", "records", "mechanism"], sort=False)["value"].median().unstack()
    shortest = f"{int((middle.idxmin(axis=1) == 'dp-spider').sum())} of {len(middle)}"
    return f"""\
## What came after the paper

{markdown_table(_best(some, "gradient"))}

*Median gradient norm at the end, epsilon = 1, delta = 1e-6, from the saddle (the wide task: from 0).*

{markdown_table(_best(some, "risk"))}

*Median risk at the end of the same runs.* Mechanisms are at their defaults; dp-spider is DP-SPIDER from a
warm start (Lowy, Ullman and Wright 2024; recursion of Arora et al. 2023). Newton steps with noise on gradient
and step ("double noise": Ganesh, Haghifam, Steinke and Thakurta 2023) have, line by line, the best of a grid
of settings, chosen by the very figure that is shown: more than a user could have. In brackets the one setting
of the grid that is best over all lines, in the geometric mean. Lines of the first table on which that one is
below all defaults: {ahead}. So it is in `experiments/workbench/nonconvex_peers.py`, and not among the
mechanisms. Lines on which dp-spider has the shortest gradient of the mechanisms: {shortest}.
"""


def _ahead(some: pd.DataFrame) -> dict[str, str]:
    """Count the cases where the best overall setting of a grid has smaller gradients than all defaults."""
    some = some[some["measure"].str.startswith("gradient")]
    middle = some.groupby(["mechanism", "measure", "problem", "records"], sort=False)["value"].median()
    overall = np.log(middle).groupby(level=[0, 1], sort=False).mean()
    single = [name for name in dict.fromkeys(some["mechanism"]) if len(overall[name]) == 1]
    least = middle[middle.index.isin(single, level=0)].groupby(level=[2, 3], sort=False).min()
    grids = [name for name in dict.fromkeys(some["mechanism"]) if name not in single]
    wins = {name: int((middle[name][overall[name].idxmin()] < least).sum()) for name in grids}
    return {name: f"{count} of {len(least)}" for name, count in wins.items()}


def _best(some: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Tabulate medians per problem and n; of a grid, the best setting per line and the best overall."""
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


def _regression(rows: pd.DataFrame) -> str:
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
    return f"""\
## Generalised linear models and robust regression

{markdown_table(pd.DataFrame(lines))}

*Excess population risk (100,000 fresh records), mean and standard deviation, of DP-FW-L2 over the l2 ball
(10 features) and DP-FW-L1 over the l1 ball (200): squared loss of a sigmoid or probit link, biweight loss
with a tenth of the errors wild; n = 10,000. Default: the package's T and step size. Printed: those of
theorems 5 and 6 with all constants 1, which return a random iterate, as DP-FW-L2 does by default. Start: the
weights 0.*
"""


def _speed(rows: pd.DataFrame) -> str:
    table = rows[rows["part"] == "speed"]
    if table.empty:
        return ""
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
    return f"""\
## Speed

{markdown_table(pd.DataFrame(lines))}

*{table["records"].iloc[0]:,} records, 50 features, best of five in one run, BLAS on one thread
(OPENBLAS_NUM_THREADS=1: on busy cores more wait for each other). Global minima with their
certificates: {times}.*
"""


def _how(rows: pd.DataFrame) -> str:
    return f"""\
## How it was measured

{machine()}. Noise is seeded by the draw: a run reproduces but for times. Plans for n records run on tables
of 400 (d = 8: 1,000; d = 20: 2,000) of which every record stands for as many as it takes: gradients and
Hessians are the same, and noise is that of n. Excess risk and regression have tables of n records. The
rules behind the defaults (T, gamma, the share of Hessians, damping) were chosen on these planted problems
and on two separable classes in 4 and 20 dimensions. {len(rows):,} figures stand in
[nonconvex.csv](nonconvex.csv).
"""


def _number(value: object) -> str:
    if not isinstance(value, float) or value != value:
        return ""
    return "0" if abs(value) < 1e-12 else f"{value:.2g}"


def _whole(value: object) -> str:
    return f"{value:.0f}" if isinstance(value, float) and value == value else ""

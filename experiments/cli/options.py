"""Options of the commands that plan and fit models, by the panels of their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS, SCORECARD_MECHANISMS
from privopt.problems.convex.parsing import LOSSES

_DATA = "Data (public facts are declared, not read off)"
_MODEL = "Model"
_PRIVACY = "Privacy"
_CARD = "Scorecards (--model card, the default)"
_RISKS = "Scorecards, trees and rule lists (--model card, tree or rules)"
_TREE = "Trees and rule lists (--model tree or rules)"
_LINEAR = "Linear models (--model linear or robust)"
_BOUNDED = "Linear models of records within bounds (--model linear)"
_CLASSES = "Classifiers (all models but robust ones)"
_OUTPUT = "Limits and output"

DataOption = Annotated[
    str,
    typer.Option(
        help="A .csv, .csv.gz or .parquet file with a header; adult23, adult23:SEED (shipped); or what "
        "an engine counts: .parquet files by a pattern, FOLDER/*.parquet, or a database by its URL.",
        rich_help_panel=_DATA,
    ),
]
TargetOption = Annotated[
    str | None, typer.Option(help="Label column. Needed for files.", rich_help_panel=_DATA)
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        help="The table of a database that --data names, as in --data duckdb://PATH, sqlite://PATH or "
        "postgresql://HOST/NAME.",
        rich_help_panel=_DATA,
    ),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        help="TOML or JSON file that declares columns. Without it they are read off the data, a leak.",
        rich_help_panel=_DATA,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        help="NEGATIVE,POSITIVE labels as the file writes them, one with a comma in double quotes; all "
        "models but scorecards take more than two. Without it: read off, a leak.",
        rich_help_panel=_DATA,
    ),
]
MarkersOption = Annotated[
    str | None,
    typer.Option(
        "--na-values",
        help="MARKER,...: further missing-value markers, in every column of the schema. Those of "
        "numbers have the usual ones (NA, ?, ...); a declared category is none.",
        rich_help_panel=_DATA,
    ),
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="card: a scorecard of integer points. linear: a linear model. robust: a linear model of records "
        "of unknown size. tree: a decision tree. rules: a list of rules. Default: that of the mechanism; "
        "linear with a --loss; otherwise card.",
        rich_help_panel=_MODEL,
    ),
]
MechanismOption = Annotated[
    str,
    typer.Option(
        help=f"auto; of scorecards: {', '.join(SCORECARD_MECHANISMS)}; of linear models: "
        f"{', '.join(RISK_MECHANISMS)}; of robust models: {', '.join(ROBUST_FITS)}.",
        rich_help_panel=_MODEL,
    ),
]
RobustOption = Annotated[
    bool,
    typer.Option("--robust", help="The same as --model robust.", rich_help_panel=_MODEL),
]

EpsilonOption = Annotated[
    float,
    typer.Option("--epsilon", help="Privacy budget of this fit, > 0; replace-one.", rich_help_panel=_PRIVACY),
]
DeltaOption = Annotated[
    str,
    typer.Option(
        help="A number in (0, 1), or auto for 1/n^2. Pure mechanisms have none.", rich_help_panel=_PRIVACY
    ),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        help="Book the spend in this ledger first, a path or URL, with #BUDGET if it holds several; "
        "refuse to overdraw.",
        rich_help_panel=_PRIVACY,
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Reproducible noise. Voids privacy.", rich_help_panel=_PRIVACY)
]

WeightOption = Annotated[
    str | None,
    typer.Option(
        help="What errors cost by class, as in well=1,ill=5; or balanced, by the inverse of the shares.",
        rich_help_panel=_CLASSES,
    ),
]
PrevalenceOption = Annotated[
    str | None,
    typer.Option(
        help="For balanced: the share of the positive class, a public number; of more classes all, with "
        "commas. Without it: released first, at a twentieth of epsilon.",
        rich_help_panel=_CLASSES,
    ),
]

LatticeOption = Annotated[
    str | None,
    typer.Option(
        help="Weights: integers LOW:HIGH, or LOW:HIGH:RADIUS with norm at most RADIUS. "
        "Default: -1:1; opdisc: all of norm at most sqrt(features).",
        rich_help_panel=_CARD,
    ),
]
ColumnsOption = Annotated[
    int | None,
    typer.Option(
        help="At most so many columns get points: those that tell records apart most. Free; of seeded, "
        "which auto then is.",
        rich_help_panel=_CARD,
    ),
]
OracleOption = Annotated[
    str, typer.Option(help="auto, or a name from `privopt solvers`.", rich_help_panel=_CARD)
]
WorkOption = Annotated[
    float,
    typer.Option(
        help="Of auto: the most steps of an exact draw, which follow from public facts; 4e8 take about a "
        "second.",
        rich_help_panel=_CARD,
    ),
]
CalibrationOption = Annotated[
    str,
    typer.Option(
        help="sound, or printed: the source paper's of opdisc and rspm, refuted.", rich_help_panel=_CARD
    ),
]
RiskOption = Annotated[
    float,
    typer.Option(
        help="Share of epsilon, in [0, 1), for a table from score to risk, of trees from leaf to risk: "
        "`privopt predict --proba`. Try 0.2, for trees 0.1.",
        rich_help_panel=_RISKS,
    ),
]
DepthOption = Annotated[
    str,
    typer.Option(
        "--max-depth",
        help="The most questions of a prediction, or rules, 1 to 4. auto: 4 for schemas with few "
        "predicates, otherwise 3.",
        rich_help_panel=_TREE,
    ),
]

LossOption = Annotated[
    str | None,
    typer.Option(help=f"{LOSSES}; robust: logistic or squared. Default: logistic.", rich_help_panel=_LINEAR),
]
StepsOption = Annotated[
    int | None,
    typer.Option(
        help="Noisy steps, >= 1. Default: the theory's, from n, d and epsilon.", rich_help_panel=_LINEAR
    ),
]
SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        help="Where weights lie: l1:SIZE, l2:SIZE, linf:SIZE or simplex. Default: what the mechanism needs.",
        rich_help_panel=_BOUNDED,
    ),
]
PenaltyOption = Annotated[
    str | None,
    typer.Option(
        "--regularizer",
        help="none, l1:STRENGTH, l2:STRENGTH, or both with a +. Default: none.",
        rich_help_panel=_BOUNDED,
    ),
]
NormOption = Annotated[
    float | None,
    typer.Option(
        "--data-norm",
        help="Norm that rows are clipped to, > 0. Default: what the schema implies; calibrate: 1.",
        rich_help_panel=_BOUNDED,
    ),
]
NormKindOption = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="l2 or linf: the norm that --data-norm bounds. Default: l2; of dp-fw-l1 linf.",
        rich_help_panel=_BOUNDED,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="LOW:HIGH that labels are clipped to, in their unit, as in --label-range=-1:1: of regression "
        "losses. Without it: read off, a leak; calibrate: -1:1.",
        rich_help_panel=_BOUNDED,
    ),
]

TimeOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds for the minimisation, draw or steps themselves; reading, encoding, compiling and "
        "laying out tables come before. At the limit nothing is released, and a ledger's booking stays. "
        "Default: none.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(help="Write the model here, JSON for `privopt predict`.", rich_help_panel=_OUTPUT),
]
JsonOption = Annotated[
    Path | None, typer.Option("--json", help="Write the full report here.", rich_help_panel=_OUTPUT)
]

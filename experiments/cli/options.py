"""Options of the commands that plan and fit models, by the panels of their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from privopt.mechanisms.registry import RISK_MECHANISMS, ROBUST_FITS, SCORECARD_MECHANISMS
from privopt.problems.convex.parsing import LOSSES

_DATA = "Data (public facts are declared, not inferred)"
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
        help="Training data: a .csv, .csv.gz or .parquet file with a header; adult23 or adult23:SEED "
        "(shipped); or a table whose records a database engine counts: Parquet files by a "
        "pattern, FOLDER/*.parquet, or the URL of a database.",
        rich_help_panel=_DATA,
    ),
]
TargetOption = Annotated[
    str | None, typer.Option(help="Name of the label column. Required for files.", rich_help_panel=_DATA)
]
TableOption = Annotated[
    str | None,
    typer.Option(
        "--table",
        help="Table of the database in --data, as in --data duckdb://PATH, sqlite://PATH or "
        "postgresql://HOST/NAME.",
        rich_help_panel=_DATA,
    ),
]
SchemaOption = Annotated[
    Path | None,
    typer.Option(
        help="TOML or JSON file that declares columns. Without it they are inferred from the data, a privacy "
        "leak.",
        rich_help_panel=_DATA,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        help="NEGATIVE,POSITIVE labels as written in the file; double quotes around a label with a comma. "
        "All models but additive ones also take more than two (multiclass). Without it they are inferred "
        "from the data, a privacy leak.",
        rich_help_panel=_DATA,
    ),
]
LearnOption = Annotated[
    float | None,
    typer.Option(
        "--learn-schema",
        help="Learn the schema from the records, as `privopt schema learn` does, for this share of the "
        "budget, as in .1: schema and model are one release. --schema declares columns that are known.",
        rich_help_panel=_DATA,
    ),
]
TypesOption = Annotated[
    str | None,
    typer.Option(
        help="With --learn-schema, NAME=TYPE,...: number, whole, text, boolean, or vote (the type is "
        "learned privately, too), as for `privopt schema learn`. Default: the types in a Parquet file; vote "
        "for a CSV file.",
        rich_help_panel=_DATA,
    ),
]
MarkersOption = Annotated[
    str | None,
    typer.Option(
        "--na-values",
        help="MARKER,...: further missing-value markers, for every column of the schema except those that "
        "declare the marker as a category. Numeric columns have the usual ones (NA, ?, ...) anyway.",
        rich_help_panel=_DATA,
    ),
]

ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="card: a scorecard of integer points. linear: a linear model. robust: a linear model for "
        "heavy-tailed records without declared bounds. tree: a decision tree. rules: a rule list. additive: "
        "a card and a tree whose scores are added, for ranking. auto: card or tree, chosen by public facts; "
        "with --ranking, card, tree or additive. Default: follows from --mechanism; linear with a --loss; "
        "otherwise card.",
        rich_help_panel=_MODEL,
    ),
]
RankingOption = Annotated[
    bool,
    typer.Option(
        "--ranking",
        help="For --model auto: scores that rank the records matter more than predicted classes.",
        rich_help_panel=_MODEL,
    ),
]
MechanismOption = Annotated[
    str,
    typer.Option(
        help=f"auto; for scorecards: {', '.join(SCORECARD_MECHANISMS)}; for linear models: "
        f"{', '.join(RISK_MECHANISMS)}; for robust models: {', '.join(ROBUST_FITS)}.",
        rich_help_panel=_MODEL,
    ),
]
RobustOption = Annotated[
    bool,
    typer.Option("--robust", help="The same as --model robust.", rich_help_panel=_MODEL),
]

EpsilonOption = Annotated[
    float,
    typer.Option(
        "--epsilon",
        help="Privacy budget of this fit, > 0; neighbours differ by replacing one record.",
        rich_help_panel=_PRIVACY,
    ),
]
DeltaOption = Annotated[
    str,
    typer.Option(
        help="Privacy parameter in (0, 1), or auto for 1/n^2. Pure mechanisms do not take it.",
        rich_help_panel=_PRIVACY,
    ),
]
PersonOption = Annotated[
    str | None,
    typer.Option(
        "--person",
        help="Column that identifies the person of each record: the guarantee is then for replacing a person "
        "with all of their records. Needs --schema and, for classifiers, --classes.",
        rich_help_panel=_PRIVACY,
    ),
]
RecordsOption = Annotated[
    str,
    typer.Option(
        "--records-per-person",
        help="With --person: the largest number of records that are used of a person, the first in the file; "
        "every person has the same weight. learn: chosen privately, for a small share of epsilon, so that "
        "all records of about nine tenths of the persons are used.",
        rich_help_panel=_PRIVACY,
    ),
]
LedgerOption = Annotated[
    str | None,
    typer.Option(
        envvar="PRIVOPT_LEDGER",
        help="Ledger in which the spend is booked first: a path or URL, with #BUDGET if it holds several "
        "budgets. The fit is refused if it overdraws the budget.",
        rich_help_panel=_PRIVACY,
    ),
]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed for reproducible noise. Voids privacy.", rich_help_panel=_PRIVACY)
]
NumbersOption = Annotated[
    str,
    typer.Option(
        help="How numbers enter a card or a logistic model: bins (a weight for each), lines (a weight per "
        "unit), or auto: bins where the budget pays for them.",
        rich_help_panel=_MODEL,
    ),
]
SampleWeightOption = Annotated[
    str | None,
    typer.Option(
        "--sample-weight",
        help="Column of weights of records, private as the records are; needs --max-weight. Files only.",
        rich_help_panel=_DATA,
    ),
]
MaxWeightOption = Annotated[
    float | None,
    typer.Option(
        "--max-weight",
        help="Public bound on the weights of records, not taken from the data: larger ones are clipped. "
        "Cards round weights to whole numbers.",
        rich_help_panel=_PRIVACY,
        min=0,
    ),
]
WeightOption = Annotated[
    str | None,
    typer.Option(
        help="Cost of an error by class, as in well=1,ill=5; or balanced, by the inverse class frequencies.",
        rich_help_panel=_CLASSES,
    ),
]
PrevalenceOption = Annotated[
    str | None,
    typer.Option(
        help="With --class-weight balanced: the public share of the positive class; for more classes all "
        "shares, with commas. Default: the shares are released first, for a twentieth of epsilon, for trees "
        "and rule lists up to a fifth.",
        rich_help_panel=_CLASSES,
    ),
]

LatticeOption = Annotated[
    str | None,
    typer.Option(
        help="Lattice of the weights: integers LOW:HIGH, or LOW:HIGH:RADIUS with norm at most RADIUS. "
        "Default: -1:1; for opdisc all of norm at most sqrt(features).",
        rich_help_panel=_CARD,
    ),
]
ColumnsOption = Annotated[
    int | None,
    typer.Option(
        help="Feature selection: the largest number of columns with points. Costs no privacy; auto then "
        "chooses the mechanism seeded.",
        rich_help_panel=_CARD,
    ),
]
ConstraintOption = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        help="Public constraint on points: 'any of age, income', 'at most 5 columns', 'sign(age) = +', "
        "'total in [0, 20]'... Repeat for several. Costs no privacy; auto then chooses the mechanism seeded.",
        rich_help_panel=_CARD,
    ),
]
CardSolverOption = Annotated[
    str,
    typer.Option(
        "--card-solver",
        help="Solver that finds the cards nearest to the private model under constraints: auto, or a name "
        "from `privopt solvers`.",
        rich_help_panel=_CARD,
    ),
]
OracleOption = Annotated[
    str, typer.Option(help="Solver: auto, or a name from `privopt solvers`.", rich_help_panel=_CARD)
]
WorkOption = Annotated[
    float,
    typer.Option(
        help="For auto: limit on the steps of an exact draw, which are known from public facts; 4e8 take "
        "about a second.",
        rich_help_panel=_CARD,
    ),
]
CalibrationOption = Annotated[
    str,
    typer.Option(
        help="sound, or printed: as printed in the papers of opdisc and rspm, which is less private than "
        "claimed.",
        rich_help_panel=_CARD,
    ),
]
RiskOption = Annotated[
    float,
    typer.Option(
        help="Share of epsilon, in [0, 1), for predicted probabilities (`privopt predict --proba`): the risk "
        "at each score of a card, or in each leaf of a tree. Try 0.2, for trees 0.1.",
        rich_help_panel=_RISKS,
    ),
]
DepthOption = Annotated[
    str,
    typer.Option(
        "--max-depth",
        help="Largest number of questions in a prediction, or of rules, 1 to 4. auto: 4 for schemas with few "
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
        help="Number of noisy steps, >= 1. Default: that of the theory, from n, d and epsilon.",
        rich_help_panel=_LINEAR,
    ),
]
SetOption = Annotated[
    str | None,
    typer.Option(
        "--set",
        help="Constraint set of the weights: l1:SIZE, l2:SIZE, linf:SIZE or simplex. Default: that of the "
        "mechanism.",
        rich_help_panel=_BOUNDED,
    ),
]
PenaltyOption = Annotated[
    str | None,
    typer.Option(
        "--regularizer",
        help="Penalty: none, l1:STRENGTH, l2:STRENGTH, or both as in l1:STRENGTH+l2:STRENGTH. Default: none.",
        rich_help_panel=_BOUNDED,
    ),
]
NormOption = Annotated[
    float | None,
    typer.Option(
        "--data-norm",
        help="Norm to which rows are clipped, > 0. Default: that implied by the schema; for `privopt "
        "calibrate` 1.",
        rich_help_panel=_BOUNDED,
    ),
]
NormKindOption = Annotated[
    str | None,
    typer.Option(
        "--norm",
        help="Kind of the norm in --data-norm: l2 or linf. Default: l2; for dp-fw-l1 and "
        "screened-statistics linf.",
        rich_help_panel=_BOUNDED,
    ),
]
LabelOption = Annotated[
    str | None,
    typer.Option(
        help="LOW:HIGH, the range to which labels are clipped in regression, in their own unit, as in "
        "--label-range=-1:1. Without it the range is inferred from the data, a privacy leak; for "
        "`privopt calibrate` it is -1:1.",
        rich_help_panel=_BOUNDED,
    ),
]

FeaturesOption = Annotated[
    int | None,
    typer.Option(
        help="Feature selection in regression: fit on this many features, the best ones on noisy moments "
        "(--mechanism sufficient-statistics) or drawn for half of epsilon by the exponential mechanism over "
        "all subsets of this size (best-subset); auto chooses between the two by public facts.",
        rich_help_panel=_BOUNDED,
    ),
]

ErrorsOption = Annotated[
    str | None,
    typer.Option(
        help="For confidence intervals of a regression on noisy moments (`privopt summary`): equal assumes "
        "that residuals have the same variance in all rows; robust does not, and costs a fifth of the "
        "budget. Default: equal.",
        rich_help_panel=_BOUNDED,
    ),
]

TimeOption = Annotated[
    float | None,
    typer.Option(
        help="Limit in seconds on the minimisation, draw or iteration; reading, encoding and compiling come "
        "before and do not count. At the limit nothing is released, and a ledger's booking stays. "
        "Default: none.",
        rich_help_panel=_OUTPUT,
    ),
]
SaveOption = Annotated[
    Path | None,
    typer.Option(help="Write the model to this JSON file, for `privopt predict`.", rich_help_panel=_OUTPUT),
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", help="Write the full report to this JSON file.", rich_help_panel=_OUTPUT),
]

"""Plan and release of a schema learned privately: cuts of numbers, categories of text, types by vote."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.mechanisms.schemas.bounds import BoundsPlan
from privopt.mechanisms.schemas.categories import CategoryPlan
from privopt.mechanisms.schemas.cuts import ENOUGH, CutPlan, strength_of
from privopt.mechanisms.schemas.readable import date_edges, outer_edges, readable_cuts
from privopt.mechanisms.schemas.types import Candidate, ColumnType, VotePlan, votes_of
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError, SchemaError, did_you_mean
from privopt.problems.notebooks import PlanInWords
from privopt.problems.tables.cells import Markers, is_usual_marker, read_numbers
from privopt.problems.tables.columns import Binned, Categorical, Column
from privopt.problems.tables.counted_cells import CountedCells
from privopt.problems.tables.dates import Date
from privopt.problems.tables.missing import MissingLevel
from privopt.problems.tables.rules import PointRule
from privopt.problems.tables.schema import Schema, numeric_between

# Possible values of the largest number of cuts of a column: the numbers of cuts of complete binary trees.
CUTS = (1, 3, 7, 15)
# On 20 synthetic tables of 4 to 20 numbers with straight, bent and stepped effects, and with a tenth of mu^2
# for the schema, linear models and cards had .009 and .015 more AUC with seven cuts than with three at
# epsilon 1 and 3 (standard errors .005), and the same AUC at 0.3; fifteen cuts were no better.
DEFAULT_CUTS = 7
# The share of a column's mu^2 that a vote on its type takes, and the share of delta that is kept for
# categories.
_VOTE_SHARE, _CATEGORY_SHARE = 0.1, 0.5
_DOWN = 1 - 2.0**-48
# The types whose columns are cut, or may be.
_CUT = (ColumnType.NUMBER, ColumnType.WHOLE, ColumnType.DATE, ColumnType.VOTE)


@dataclass(frozen=True)
class ColumnPlan:
    """Plan of one learned column: the plans of vote, cuts, categories or bounds that its type needs."""

    name: str
    type: ColumnType
    vote: VotePlan | None
    cuts: CutPlan | None
    categories: CategoryPlan | None
    bounds: BoundsPlan | None = None

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy: the level of the vote, composed with the level of the
        costliest plan.
        """
        vote = 0.0 if self.vote is None else self.vote.level
        plans = (self.cuts, self.categories, self.bounds)
        rest = max((plan.level for plan in plans if plan is not None), default=0.0)
        return math.hypot(vote, rest) * (1 + 2.0**-50)

    @property
    def delta(self) -> float:
        return 0.0 if self.categories is None else self.categories.delta

    def __str__(self) -> str:
        parts = []
        if self.vote is not None:
            parts.append(f"type by vote, safe beyond a lead of {self.vote.margin:,} cells")
        if self.cuts is not None:
            count = 2**self.cuts.depth - 1
            parts.append(f"{count} cut{'s' * (count > 1)}")
        if self.bounds is not None:
            parts.append(f"two bounds, each with about {self.bounds.beyond:,.0f} records beyond it")
        if self.categories is not None:
            parts.append(f"categories of {self.categories.found:,} records or more")
        return f"{self.name}: {'; '.join(parts) or 'both values, free'}"

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON; costs are levels of Gaussian differential privacy, and delta."""
        return {
            "name": self.name,
            "type": str(self.type),
            "mu": self.level,
            "delta": self.delta,
            "cuts": 0 if self.cuts is None else 2**self.cuts.depth - 1,
            "strength": None if self.cuts is None else self.cuts.strength,
            "beyond_bounds": None if self.bounds is None else self.bounds.beyond,
            "smallest_category": None if self.categories is None else self.categories.found,
        }


@dataclass(frozen=True, eq=False)
class LearnedSchema:
    """A released schema. Everything computed from it is post-processing.

    Attributes:
        schema: for every model; learned columns accept every cell.
        spend: what the release cost.
        left_out: columns without a cut, or without a category that enough records have; they are not in the
            schema. If no other column was learned or declared, the schema does hold them, but says of each
            only whether a cell is a number.
        ranks: the categories of each learned column of text, the largest noisy counts first.
    """

    schema: Schema
    spend: PrivacySpend
    left_out: tuple[str, ...]
    ranks: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def coarser(self, most: int) -> Schema:
        """Return the schema with at most ``most`` categories of each learned column of text."""
        said = self.schema.to_dict()
        for column in said["columns"]:
            if column["name"] in self.ranks:
                kept = self.ranks[column["name"]][:most]
                column["categories"] = [name for name in column["categories"] if name in kept]
        return Schema.from_dict(said)

    def _repr_html_(self) -> str:
        """Return a table of the columns, and one of the spend, for notebooks."""
        return self.schema._repr_html_() + self.spend._repr_html_()


@dataclass(frozen=True, eq=False)
class SchemaPlan(PlanInWords):
    """Learn a schema from a table: cuts of its numbers, categories of its text.

    Privacy: ``spend``, neighbours by replacing one record; their number, and names and declared types of
    columns, are public. Columns share mu^2 equally; each is ``level``-GDP except for its ``delta`` (see
    ``CutPlan``, ``CategoryPlan``, ``VotePlan``), and together they are sqrt(sum of level^2)-GDP except for
    the sum of deltas. Every cell is read by itself, by a public rule; in a column of numbers a cell that is
    no number counts as missing. Learned columns have a missing level and take every cell, so no cell is ever
    refused.

    Attributes:
        columns: the learned columns.
        declared: columns that are not learned: they are kept, and cost nothing.
        order: the names of all columns, in the order of the schema.
        na_values: missing-value markers of learned columns in addition to the usual ones.
        n_records: public.
        spend: of the release.
        labels, units: labels and units of declared columns, by name.
    """

    title: ClassVar[str] = "Plan of a schema"
    name: ClassVar[str] = "learn-schema"
    noised: ClassVar[str] = (
        "of each column: the ranks of cuts, the counts of categories, the votes on its type"
    )

    columns: tuple[ColumnPlan, ...]
    declared: tuple[Column, ...]
    order: tuple[str, ...]
    na_values: tuple[str | float, ...]
    n_records: int
    spend: PrivacySpend
    labels: tuple[tuple[str, str], ...] = ()
    units: tuple[tuple[str, str], ...] = ()

    @property
    def facts(self) -> dict[str, str]:
        """The plan in words, by name of the fact."""
        learned = {c.name: str(c).removeprefix(f"{c.name}: ") for c in self.columns}
        return {"spend": str(self.spend), **learned, **{c.name: "declared, free" for c in self.declared}}

    @classmethod
    def plan(
        cls,
        types: Mapping[str, ColumnType | str],
        n_records: int,
        *,
        epsilon: float,
        delta: float,
        cuts: int = DEFAULT_CUTS,
        declared: Schema | None = None,
        na_values: Sequence[str | float] = (),
    ) -> Self:
        """Calibrate to public facts.

        Args:
            types: type of each column to learn, by name, in the order of the schema.
            n_records: the number of records.
            epsilon, delta: of the release.
            cuts: the largest number of cuts of a column of numbers: 1, 3, 7 or 15.
            declared: known columns, which cost nothing; columns not in ``types`` come last.
            na_values: missing-value markers of learned columns in addition to the usual ones.

        Raises:
            PrivacyParameterError: epsilon or delta out of range, or too small for this table: the message
                says what is needed.
            InvalidInputError, SchemaError: types, cuts, names or markers that cannot be used; declared
                columns with constraints on points.
        """
        kinds = _checked_types(types)
        n, known = check_count(n_records, "n_records"), () if declared is None else declared.columns
        if cuts not in CUTS:
            raise InvalidInputError(f"cuts must be one of {', '.join(map(str, CUTS))}; got {told(cuts)}")
        free = [column.name for column in known]
        paid = {name: kind for name, kind in kinds.items() if name not in free}
        _check_names(paid, known, na_values)
        _check_no_rules(declared)
        learned = [name for name, kind in paid.items() if kind is not ColumnType.BOOLEAN]
        spend, mu, threshold = _shares([paid[name] for name in learned], epsilon, delta, cls.name)
        column = partial(_column_plan, mu=mu, delta=threshold, n=n, most_depth=cuts.bit_length())
        plans = tuple(column(name, kind) for name, kind in paid.items())
        _check_enough(plans, n, mu)
        order = tuple(dict.fromkeys([*kinds, *(c.name for c in known)]))
        shown = {} if declared is None else dict(zip(free, declared.displays, strict=True))
        labels = tuple((name, d.label) for name, d in shown.items() if d.label is not None)
        units = tuple((name, d.unit) for name, d in shown.items() if d.unit is not None)
        made = cls(plans, known, order, tuple(na_values), n, spend, labels, units)
        made._check_spend()
        return made

    @property
    def level(self) -> float:
        """The level of Gaussian differential privacy of all columns together, rounded up."""
        return math.hypot(*(column.level for column in self.columns)) * (1 + 2.0**-46)

    def _check_spend(self) -> None:
        """Check that the columns compose to what is spent."""
        left = self.spend.delta - math.fsum(column.delta for column in self.columns)
        if self.level > gaussian_mu(self.spend.epsilon, left):
            raise PrivacyParameterError("the calibrated columns do not meet their own target: report this")

    def spend_with(self, noise: NoiseSource) -> PrivacySpend:
        """Return the spend of a release with this source."""
        return replace(self.spend, insecure_seed=noise.insecure_seed)

    def release(self, cells: Mapping[str, Any], source: NoiseSource) -> LearnedSchema:
        """Learn the schema, once. Costs ``spend``.

        Args:
            cells: the columns by name: NumPy arrays or Arrow arrays of text, or cells with their counts.
            source: the source of noise.
        """
        ranks: dict[str, Sequence[str]] = {}
        found = {plan.name: self._released(plan, cells, source, ranks) for plan in self.columns}
        columns = _distinct(found, self.declared) | {column.name: column for column in self.declared}
        left_out = tuple(name for name in self.order if columns[name] is None)
        if len(left_out) == len(self.order):
            columns = {name: self._unread(name) for name in left_out}
        kept = [column for name in self.order if (column := columns[name]) is not None]
        schema = Schema(kept, intercept=True, labels=dict(self.labels), units=dict(self.units))
        known = {column.name: _categories(column) for column in kept if column.name in ranks}
        own = {name: tuple(c for c in ranks[name] if c in held) for name, held in known.items() if held}
        return LearnedSchema(schema, self.spend_with(source), left_out, own)

    def _unread(self, name: str) -> Column:
        """Return a substitute for a column that was not learned: whether a cell is a number. It refuses no
        cell.
        """
        return MissingLevel(Binned(name, [0, 1], na_values=self.na_values))

    def _released(
        self, plan: ColumnPlan, cells: Mapping[str, Any], source: NoiseSource, ranks: dict[str, Sequence[str]]
    ) -> Column | None:
        """Release one column; None if it has no cut or category. The order of its categories is written to
        ``ranks``.
        """
        kind, form, notation = Candidate(plan.type)
        if kind is ColumnType.BOOLEAN:
            return _of_categories(plan.name, [False, True], self.na_values)
        held, markers = CountedCells.of(cells[plan.name]), Markers.of(self.na_values)
        if plan.vote is not None:
            kind, form, notation = plan.vote.release(votes_of(held, markers), source)
        if kind is ColumnType.TEXT:
            assert plan.categories is not None
            texts = plan.categories.release(_texts(held, markers), source)
            ranks[plan.name] = texts
            return _of_texts(plan.name, sorted(filter(_is_writable, texts)), self.na_values)
        if kind is ColumnType.DATE:
            assert plan.cuts is not None
            made = Date(plan.name, date_edges([0.0]), format=form, na_values=self.na_values)
            days = made.days(held.cells).days
            known = ~np.isnat(days)
            values = days[known].astype(np.int64).astype(np.float64)
            cuts = plan.cuts.release(values, source, held.counts[known])
            if not cuts:
                return None
            return MissingLevel(Date(plan.name, date_edges(cuts), format=form, na_values=self.na_values))
        values = read_numbers(notation.usual(held.cells), markers).values
        known = ~np.isnan(values)
        if plan.bounds is not None:
            found = plan.bounds.release(values[known], source, held.counts[known])
            return MissingLevel(numeric_between(plan.name, *found, na_values=self.na_values))
        assert plan.cuts is not None
        whole = kind is ColumnType.WHOLE
        cuts = plan.cuts.release(values[known], source, held.counts[known])
        if not cuts:
            return None
        edges = outer_edges(readable_cuts(cuts, whole=whole), whole=whole)
        return MissingLevel(Binned(plan.name, edges, na_values=self.na_values, **notation.to_dict()))

    def to_dict(self) -> dict[str, Any]:
        """Return the spend, and what each column costs, for JSON."""
        return {**self.spend.to_dict(), "columns": [column.to_dict() for column in self.columns]}


def _checked_types(types: Mapping[str, ColumnType | str]) -> dict[str, ColumnType]:
    names = [str(kind) for kind in ColumnType]
    for name, kind in types.items():
        if kind not in names:
            raise InvalidInputError(
                f"column {name!r}: its type must be one of {', '.join(names)}; got {told(kind)}"
                + did_you_mean(kind, names)
            )
    return {str(name): ColumnType(kind) for name, kind in types.items()}


def _check_no_rules(declared: Schema | None) -> None:
    """Refuse constraints on points, which a learned schema would not keep."""
    if declared is not None and (declared.constraints or set(declared.rules) - {PointRule()}):
        raise InvalidInputError(
            "the declared columns have constraints on points, which a learned schema does not keep. To do: "
            "leave them out, and give constraints=[...] (--constraint) to a card that is fitted with the "
            "learned schema"
        )


def _check_names(
    paid: Mapping[str, ColumnType], known: Sequence[Column], na_values: Sequence[str | float]
) -> None:
    """Check names and markers, by building the columns with made-up cuts and categories.

    Raises:
        InvalidInputError: nothing to learn.
        SchemaError: names or markers that no schema takes.
    """
    if not any(kind is not ColumnType.BOOLEAN for kind in paid.values()):
        raise InvalidInputError(
            "nothing to learn: a schema is learned from columns of numbers, dates and text that are not "
            "declared"
        )
    Binned("learned", [0, 1], na_values=na_values)
    try:
        Schema([*(MissingLevel(Binned(name, [0, 1])) for name in paid), *known], True)
    except SchemaError:  # its message quotes names, which may be a record
        raise SchemaError(
            "every column needs a name, and the names of its features, such as 'NAME is missing', must "
            "differ from those of other columns"
        ) from None


def _shares(
    kinds: Sequence[ColumnType], epsilon: float, delta: float, name: str
) -> tuple[PrivacySpend, float, float]:
    """Return the spend, and mu and delta of each column."""
    check_epsilon(epsilon)
    check_delta(delta)
    texts = sum(kind in (ColumnType.TEXT, ColumnType.VOTE) for kind in kinds)
    kept = delta * _CATEGORY_SHARE if texts else 0.0
    mu = gaussian_mu(epsilon, delta - kept)
    spend = (
        PrivacySpend.approximate(epsilon, delta, name)
        if texts
        else PrivacySpend(epsilon, delta, "gdp", name, level=mu)
    )
    return spend, mu / math.sqrt(len(kinds)) * _DOWN, kept / max(texts, 1) * _DOWN


def _column_plan(
    name: str, kind: ColumnType, *, mu: float, delta: float, n: int, most_depth: int
) -> ColumnPlan:
    vote = VotePlan.plan(mu * math.sqrt(_VOTE_SHARE), n) if kind is ColumnType.VOTE else None
    rest = mu if vote is None else mu * math.sqrt(1 - _VOTE_SHARE) * _DOWN
    is_text = kind in (ColumnType.TEXT, ColumnType.VOTE)
    cuts = CutPlan.plan(rest, n, most_depth=most_depth) if kind in _CUT else None
    categories = CategoryPlan.plan(rest, delta, n) if is_text else None
    bounds = BoundsPlan.plan(mu, n) if kind is ColumnType.RANGE else None
    return ColumnPlan(name, kind, vote, cuts, categories, bounds)


def _check_enough(plans: Sequence[ColumnPlan], n: int, mu: float) -> None:
    """Raise PrivacyParameterError, before any data, if the records are too few for some column."""
    uncut = any(plan.type in _CUT and plan.cuts is None for plan in plans)
    unbounded = any(plan.type is ColumnType.RANGE and plan.bounds is None for plan in plans)
    rare = [plan for plan in plans if plan.categories is not None and 2 * plan.categories.found > n]
    if not (uncut or unbounded or rare):
        return
    learned = sum(plan.type is not ColumnType.BOOLEAN for plan in plans)
    ways = []
    if uncut:
        votes = any(plan.vote is not None for plan in plans)
        one, three = (_records_for(mu, depth, n, votes=votes) for depth in (1, 2))
        ways.append(f"about {one:,} for one cut of each column of numbers or dates, {three:,} for three")
    if unbounded:  # two draws, as a tree of three cuts
        ways.append(f"about {_records_for(mu, 2, n, votes=False):,} for bounds")
    if rare:
        found = max(plan.categories.found for plan in rare if plan.categories is not None)
        ways.append(f"{2 * found:,} for a category that half of them have")
    # The message quotes no names of columns: in a table without a header these are the cells of a record.
    raise PrivacyParameterError(
        f"too few records, {n:,}, to learn {learned} column{'s' * (learned > 1)} at this epsilon; needed are "
        f"{' and '.join(ways)}. To do: declare columns, leave columns out, or raise epsilon"
    )


def _records_for(mu: float, depth: int, n: int, *, votes: bool) -> int:
    """Return the number of records that trees of a depth need, if each column is mu-GDP."""
    left = 1 - _VOTE_SHARE if votes else 1.0
    return math.ceil(ENOUGH / strength_of(mu * math.sqrt(left / depth), n))


def _of_categories(
    name: str, categories: Sequence[str | int], na_values: Sequence[str | float]
) -> Column | None:
    """Return a learned column with these categories; None without categories."""
    return MissingLevel(Categorical(name, categories, "ignore", na_values=na_values)) if categories else None


def _categories(column: Column) -> Sequence[str | int]:
    """Return the categories of a learned column; none of other kinds."""
    inner = column.column if isinstance(column, MissingLevel) else column
    return inner.categories if isinstance(inner, Categorical) else ()


def _of_texts(name: str, texts: Sequence[str], na_values: Sequence[str | float]) -> Column | None:
    """Return a learned column of released texts; texts that are usual words for a missing value become its
    markers.
    """
    words = [text for text in texts if is_usual_marker(text)]
    return _of_categories(name, [text for text in texts if text not in words], [*na_values, *words])


def _distinct(learned: Mapping[str, Column | None], declared: Sequence[Column]) -> dict[str, Column | None]:
    """Drop learned categories whose feature has the name of another feature: a schema with both would be
    refused.

    A column "a" with the category "b=c" and a column "a=b" with the category "c" both have the feature
    "a=b=c".
    """
    columns = [*declared, *(column for column in learned.values() if column is not None)]
    named, kept = Counter(name for column in columns for name in column.feature_names), dict(learned)
    for name, column in learned.items():
        inner = column.column if isinstance(column, MissingLevel) else None
        if isinstance(inner, Categorical):
            alone = [c for c, f in zip(inner.categories, inner.feature_names, strict=True) if named[f] == 1]
            kept[name] = _of_categories(name, alone, inner.na_values)
    return kept


def _texts(cells: CountedCells, markers: Markers) -> dict[str, int]:
    """Return the counts of the cells that are text and no missing-value marker."""
    return {text: count for text, count in cells.apart()[0].items() if text not in markers.texts}


def _is_writable(text: str) -> bool:
    """Return whether a file in UTF-8 can hold a text: not half of a character."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)

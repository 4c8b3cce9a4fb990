"""Encoding of a table as integer features over a common denominator, from public declarations."""

from __future__ import annotations

import inspect
import itertools
import json
import math
import tomllib
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from privopt.problems.arguments import as_path, told
from privopt.problems.arrays import term_by_term
from privopt.problems.convex.coded import CodedRows
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.discrete.layout import Layout
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning, SchemaError, did_you_mean
from privopt.problems.notebooks import html_table
from privopt.problems.plugins import entries, loaded
from privopt.problems.programs.constraints import Constraint, check_constraints
from privopt.problems.programs.parsing import parse_constraints
from privopt.problems.tables.cells import MISSING, UNREADABLE, read_numbers, text_positions
from privopt.problems.tables.columns import Binned, Categorical, Column, Numeric
from privopt.problems.tables.cuts import has_bins, in_bins
from privopt.problems.tables.dates import Date
from privopt.problems.tables.display import KEYS as DISPLAY_KEYS
from privopt.problems.tables.display import Display, displays_of
from privopt.problems.tables.frames import (
    MOST_NAMED,
    Table,
    cells_of,
    check_distinct,
    columns_of,
    missing_columns,
    unread_columns,
)
from privopt.problems.tables.missing import MissingLevel, plain_column
from privopt.problems.tables.persons import check_undeclared
from privopt.problems.tables.point_columns import point_columns
from privopt.problems.tables.rules import KEYS, PointRule
from privopt.problems.tables.values import FEATURE_LIMIT

# The approximate number of grid points per column in Schema.infer. From zero to one there are k steps, for a
# divisor k of 120: so all features are multiples of 1/120, and the common denominator does not grow with the
# number of columns.
_GRID_LEVELS = 100
_GRID_SPANS = [k for k in range(1, 121) if 120 % k == 0]
_MOST_CATEGORIES, _FEW_CATEGORIES = 1000, 20
# The group of the entry points that learn schemas.
LEARNERS = "privopt.schema_learners"
# The largest number of codes of all columns together for which features are stored as codes.
_MOST_LEVELS = 1024


@dataclass(frozen=True, eq=False)
class IntegerFeatures:
    """Features multiplied by their common denominator.

    Attributes:
        X: int64, shape (n, d).
        denominator: X / denominator are the features.
        names: one per feature, length d.
    """

    X: IntArray
    denominator: int
    names: list[str]


@dataclass(frozen=True)
class Schema:
    """Declared columns and their encoding as features, in the declared order.

    Privacy: nothing is learned from the data. Each record is encoded on its own, by the declaration, so
    tables that differ in one record give feature matrices that differ in one row, and encoding costs no
    budget. A refusal, however, reveals that some record breaks the declaration: declare "clip" and "ignore"
    if that must not be revealed.

    ``load`` and ``save`` keep schemas as files. In TOML (JSON has the same keys):

        intercept = true

        [[columns]]
        kind = "numeric"        # see Numeric; zero, one, step and outside may be left out
        name = "age"
        low = 17
        high = 90
        step = 1
        zero = 0
        one = 90
        outside = "clip"

        [[columns]]
        kind = "categorical"    # see Categorical
        name = "sex"
        categories = ["Female", "Male"]
        outside = "refuse"

        [[columns]]
        kind = "binned"         # see Binned
        name = "hours"
        edges = [1, 35, 41, "99.5"]
        outside = "clip"

        [[columns]]
        kind = "date"           # see Date
        name = "admitted"
        edges = [2020-01-01, 2022-01-01, 2024-01-01]

    Args:
        columns: the declarations; names are distinct.
        intercept: whether a feature that is always 1 follows the other features.
        rules: constraints on the points of columns by name, see ``PointRule``; in files the keys
            ``monotone`` and ``points`` of a column.
        constraints: further constraints on the points of cards, as text ("any of age, income", see
            ``parse_constraint``) or ``Constraint``; in files the key ``constraints``, a list before the
            columns.
        labels, units: names and units of columns for people, by name, on cards, pages and in comments of
            SQL; in files the keys ``label`` and ``unit`` of a column.
        person: the column that identifies the person of a record, for tables with several records of a
            person; it is no feature. Estimators then protect persons, as with their parameter ``person``;
            functions that can protect only single records refuse such a schema. In files the key ``person``,
            before the columns.

    Raises:
        SchemaError: no columns, a repeated name, a declaration of the column of persons, a constraint that
            does not fit the columns, or a common denominator too large for exact arithmetic.
    """

    columns: tuple[Column, ...]
    intercept: bool = False
    rules: tuple[PointRule, ...] = ()  # one for each column
    constraints: tuple[Constraint, ...] = ()
    displays: tuple[Display, ...] = ()  # one for each column
    person: str | None = None

    kinds: ClassVar[dict[str, type[Numeric | Categorical | Binned]]] = {
        "numeric": Numeric,
        "categorical": Categorical,
        "binned": Binned,
        "date": Date,
    }

    def __init__(
        self,
        columns: Sequence[Column],
        intercept: bool = False,
        rules: Mapping[str, PointRule] | None = None,
        constraints: Sequence[str | Constraint] = (),
        labels: Mapping[str, str] | None = None,
        units: Mapping[str, str] | None = None,
        person: str | None = None,
    ) -> None:
        if not isinstance(columns, Sequence):
            raise SchemaError(f"a schema takes a list of columns, got {told(columns)}")
        object.__setattr__(self, "columns", tuple(columns))
        object.__setattr__(self, "intercept", intercept)
        if not self.columns or not all(isinstance(c, Column) for c in self.columns):
            raise SchemaError("a schema needs at least one column: Numeric, Categorical, Binned or Date")
        if not isinstance(intercept, bool):
            raise SchemaError("intercept must be true or false")
        if person is not None and not isinstance(person, str):
            raise SchemaError(f"person must be the name of a column, got {told(person)}")
        check_undeclared(person, self.columns)
        object.__setattr__(self, "person", person)
        for kind, names in (("column", [c.name for c in self.columns]), ("feature", self.feature_names)):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise SchemaError(f"{kind} names must be distinct; declared more than once: {twice}")
        if unknown := sorted(set(rules or {}) - {c.name for c in self.columns}):
            raise SchemaError(f"constraints on points of columns that are not declared: {unknown}")
        each = tuple((rules or {}).get(c.name, PointRule()) for c in self.columns)
        object.__setattr__(self, "rules", each)
        names = [c.name for c in self.columns]
        object.__setattr__(self, "displays", displays_of(names, labels or {}, units or {}))
        object.__setattr__(self, "constraints", self.with_constraints(constraints))
        if self.denominator * max(c.reach for c in self.columns) >= FEATURE_LIMIT:
            raise SchemaError(
                "the common denominator of all columns is too large for exact 64-bit arithmetic; "
                "use coarser steps, or bounds whose differences share factors"
            )

    @property
    def feature_names(self) -> list[str]:
        names = [name for column in self.columns for name in column.feature_names]
        return names + ["intercept"] * self.intercept

    @property
    def levels(self) -> list[tuple[str, str]]:
        """The column and the level of each feature."""
        named = [(column.name, level) for column in self.columns for level in column.levels]
        return named + [("intercept", "always")] * self.intercept

    @property
    def titles(self) -> dict[str, str]:
        """The name of each column for people: its label and unit, if declared."""
        pairs = zip(self.columns, self.displays, strict=True)
        return {column.name: display.title(column.name) for column, display in pairs}

    @property
    def feature_titles(self) -> dict[str, str]:
        """The name of each feature for people, by its name: it begins with the title of its column."""
        titles = self.titles
        pairs = ((c.name, name) for c in self.columns for name in c.feature_names)
        return {name: titles[column] + name.removeprefix(column) for column, name in pairs}

    @property
    def text_columns(self) -> list[str]:
        """The columns to read from files as text ("01" stays "01"): declared ones and the persons' column."""
        return [*(column.name for column in self.columns), *([] if self.person is None else [self.person])]

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The features (first, last + 1) of each column, its missing level included."""
        sizes = (len(column.feature_names) for column in self.columns)
        return tuple(itertools.pairwise(itertools.accumulate(sizes, initial=0)))

    @property
    def numbers(self) -> dict[int, Numeric]:
        """The numeric columns, by the index of their feature."""
        plain = ((start, plain_column(c)[0]) for (start, _), c in zip(self.spans, self.columns, strict=True))
        return {start: column for start, column in plain if isinstance(column, Numeric)}

    @property
    def flags(self) -> tuple[int, ...]:
        """The 0/1 features: categories, bins, missing levels, and the intercept."""
        numbers = self.numbers
        return tuple(j for j in range(self.n_features) if j not in numbers)

    @property
    def layout(self) -> Layout:
        """The indicators among the integer features: a block for each column, and one for the intercept."""
        numbers = {j for j, number in self.numbers.items() if set(number.ends) != {0, 1} or number.top > 1}
        blocks, patterns = [], 1
        for column, (start, stop) in zip(self.columns, self.spans, strict=True):
            if block := tuple(j for j in range(start, stop) if j not in numbers):
                blocks.append(block)
                patterns *= min(column.n_codes, 1 + len(block))
        constant = [(self.n_features - 1,)] if self.intercept else []
        return Layout((*blocks, *constant), self.denominator, patterns)

    @property
    def n_features(self) -> int:
        return len(self.feature_names)

    @cached_property
    def denominator(self) -> int:
        """The least common denominator of all values that features can take."""
        return math.lcm(*(c.denominator for c in self.columns))

    @property
    def middle(self) -> NDArray[np.float64]:
        """The public centre of the features, shape (n_features,); centring at it shortens rows."""
        columns = [float(m) for column in self.columns for m in column.middle]
        return np.array(columns + [0.0] * self.intercept)

    @property
    def spread(self) -> float:
        """A public bound on the l2 distance of an encoded row from ``middle``."""
        squares = float(sum(column.squared_spread for column in self.columns)) + self.intercept
        return math.sqrt(squares) * (1 + 1e-12)

    def norm(self, kind: Literal["l2", "linf"] = "l2") -> float:
        """Return a public bound on the norm of every encoded row."""
        if kind == "linf":
            return max([float(column.reach) for column in self.columns] + [1.0] * self.intercept)
        squares = sum(float(column.reach) ** 2 for column in self.columns)  # a row has one level per column
        return math.sqrt(squares + self.intercept)

    def encode(self, table: Table) -> IntegerFeatures:
        """Encode a table as features times the common denominator.

        Args:
            table: a DataFrame or a dict of columns, where columns are found by name and further ones are
                ignored; or an array of shape (n, number of columns) in declared order.

        Raises:
            SchemaError: a table that does not fit. The message names the column and the rule, no values.
        """
        return self.features(self.codes(table))

    def codes(self, table: Table) -> list[IntArray]:
        """Encode a table as codes, shape (n,) per column; arguments and errors as for ``encode``."""
        arrays = self.declared_columns(table)
        return [column.code(values) for column, values in zip(self.columns, arrays, strict=True)]

    def features(self, codes: Sequence[IntArray]) -> IntegerFeatures:
        """Return the features of codes (see ``codes``), times the common denominator."""
        X = np.zeros((len(codes[0]), self.n_features), dtype=np.int64)
        for column, found, (first, last) in zip(self.columns, codes, self.spans, strict=True):
            column.write(found, X[:, first:last], self.denominator)
        if self.intercept:
            X[:, -1] = self.denominator
        return IntegerFeatures(X, self.denominator, self.feature_names)

    def products(self, codes: Sequence[IntArray], weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return features @ weights for codes (see ``codes``), shape (n, k), with each row summed by itself.

        If a column has fewer codes than there are records, its features are computed once for each code.
        """
        total = np.zeros((len(codes[0]), weights.shape[1]))
        for column, found, (first, last) in zip(self.columns, codes, self.spans, strict=True):
            once = column.n_codes <= len(found)
            written = np.arange(column.n_codes) if once else found
            features = np.zeros((len(written), last - first), dtype=np.int64)
            column.write(written, features, self.denominator)
            sums = term_by_term(features / self.denominator, weights[first:last])
            total += sums[found] if once else sums
        return total + weights[-1] if self.intercept else total

    def coded(self, codes: Sequence[IntArray]) -> CodedRows | None:
        """Return the features as coded rows; None if the columns have too many codes in total."""
        sizes = [column.n_codes for column in self.columns]
        if sum(sizes) > _MOST_LEVELS:
            return None
        starts = np.cumsum([0, *sizes])
        table = np.zeros((sum(sizes), self.n_features - self.intercept), dtype=np.int64)
        own = np.zeros(table.shape, dtype=bool)
        for column, start, (first, last) in zip(self.columns, starts.tolist(), self.spans, strict=False):
            levels, features = slice(start, start + column.n_codes), slice(first, last)
            column.write(np.arange(column.n_codes), table[levels, features], self.denominator)
            own[levels, features] = True
        rows = np.empty((len(codes[0]), len(codes)), dtype=np.int32)
        for k, code in enumerate(codes):
            rows[:, k] = code + starts[k]
        found = CodedRows(rows, table / self.denominator, own)
        return found.with_constant(1.0) if self.intercept else found

    def with_na_values(self, na_values: Sequence[str | float]) -> Schema:
        """Return the schema with more missing-value markers in every column, except declared categories."""
        columns = []
        for column in self.columns:
            kind, _ = plain_column(column)
            if not isinstance(kind, Numeric | Binned | Categorical):
                raise SchemaError(f"column {column.name!r}: {type(column).__name__} takes no na_values")
            columns.append(self._column({**column.to_dict(), "na_values": [*kind.na_values, *na_values]}))
        return self._with_columns(columns)

    def with_bins(self) -> Schema:
        """Return the schema with every numeric column in bins, for effects that are not linear.

        A linear model or scorecard has one weight for a number, and one weight for each bin of a binned
        number, so that risks may rise and fall again. Bins follow from the declared range and grid alone, as
        do the cuts of decision trees: eight of equal width, and four narrower ones near 0 if the range starts
        there. So no record is read. A number of two values keeps its one weight. The bins of
        ``learn_schema`` follow the records, for a share of the budget.
        """
        return self._with_columns([in_bins(c) if has_bins(c) else c for c in self.columns])

    def with_intercept(self) -> Schema:
        """Return the schema with a feature that is always 1, unless another feature has its name."""
        named = "intercept" in self.feature_names
        return self if named else self._with_columns(self.columns, intercept=True)

    def refines(self, other: Schema) -> bool:
        """Return whether counts by this schema determine those by another: itself or its form with bins.

        Whether either has an intercept does not matter.
        """
        return other._counted_by == self._counted_by or other._counted_by == self.with_bins()._counted_by

    @property
    def _counted_by(self) -> tuple[object, ...]:
        return self.columns, self.rules, self.constraints, self.displays, self.person

    def _with_columns(self, columns: Sequence[Column], intercept: bool = False) -> Schema:
        """Return the schema with other columns of the same names, and an intercept if either has one."""
        rules = {c.name: r for c, r in zip(columns, self.rules, strict=True)}
        labels = {c.name: d.label for c, d in zip(columns, self.displays, strict=True) if d.label is not None}
        units = {c.name: d.unit for c, d in zip(columns, self.displays, strict=True) if d.unit is not None}
        whole = self.intercept or intercept
        return Schema(columns, whole, rules, self.constraints, labels, units, self.person)

    def for_records(self) -> Schema:
        """Return the schema without its column of persons."""
        return self.from_dict({key: value for key, value in self.to_dict().items() if key != "person"})

    def with_constraints(self, given: Sequence[str | Constraint] | None) -> tuple[Constraint, ...]:
        """Return the schema's constraints and further ones, each once.

        Raises:
            SchemaError: a constraint that cannot be read, or does not fit the columns.
        """
        try:
            found = parse_constraints([*self.constraints, *parse_constraints(given)])
            check_constraints(found, point_columns(self.columns))
        except InvalidInputError as error:
            raise SchemaError(str(error)) from error
        return found

    def declared_columns(self, table: Table) -> list[NDArray[Any]]:
        """Return the declared columns of a table, in declared order; errors as for ``encode``."""
        return [cells_of(values) for values in self._declared(unread_columns(table))]

    def _declared(self, table: list[tuple[str | None, Any]]) -> list[Any]:
        """Return the declared columns of a table, in declared order."""
        if table and table[0][0] is None:
            if len(table) != len(self.columns):
                raise SchemaError(
                    f"arrays need one column for each of the {len(self.columns)} declared, in that order; "
                    f"got {len(table)}"
                )
            return [values for _, values in table]
        names = [str(name) for name, _ in table]
        if missing := [c.name for c in self.columns if c.name not in names]:
            raise SchemaError(f"missing from the table: {missing_columns(missing, names)}")
        if twice := [c.name for c in self.columns if names.count(c.name) > 1]:
            raise SchemaError(f"more than once in the table: column {', '.join(map(repr, twice))}")
        values = dict(zip(names, (values for _, values in table), strict=True))
        return [values[column.name] for column in self.columns]

    @staticmethod
    def learn(table: Any, *, epsilon: float, **options: Any) -> Any:
        """Learn a schema from a table privately, at the cost of ``epsilon``.

        This is ``privopt.mechanisms.learn_schema``, which states the guarantee and all options. It is found
        by an entry point, since problems import no mechanism.

        Args:
            table: a data frame, a mapping of columns, or an Ibis table.
            epsilon: > 0, of this release.
            options: as for ``learn_schema``: ``delta``, ``types``, ``declared``, ``leave_out``, ``cuts``,
                ``na_values``, ``ledger``, ``person``.

        Returns:
            A ``LearnedSchema``, with the attributes ``schema``, ``spend`` and ``left_out``.

        Raises:
            SchemaError: privopt is not installed as a package, or incompletely.
            PrivOptError: as for ``learn_schema``.
        """
        learners = [entry for entry in entries(LEARNERS) if entry.name == "privopt"]
        if not learners:
            raise SchemaError("nothing that learns schemas is installed. To do: install privopt anew")
        learner = loaded(learners[0], "the learner of schemas", SchemaError)
        return learner(table, epsilon=epsilon, **options)

    @classmethod
    def infer(cls, table: Table, *, intercept: bool = False) -> Schema:
        """Infer a draft of a schema from the data: a starting point to edit, and NOT private.

        A column becomes Numeric if most of its cells are numbers or texts of numbers (missing cells do not
        count). Its bounds contain the smallest and the largest value. It has at most about 100 grid points,
        with a step of 1, 2 or 5 times a power of ten, at least 1 for integers. Other columns become
        Categorical, with sorted categories and undeclared ones ignored. Both get a missing level if a cell
        is missing or, in a numeric column, not a number.

        Privacy: bounds and categories reveal records. Every use of the result on the same data is outside
        any privacy statement, as the PrivacyLeakWarning says.

        Raises:
            SchemaError: no records, no bounds that can be inferred, or a text column with too many distinct
                texts: more than 1000, or more than half as many as records if these are more than 20.
        """
        warnings.warn(
            "bounds and categories are inferred from the data, which no privacy budget covers; "
            "declare a Schema from public facts instead, or pay for one: Schema.learn",
            PrivacyLeakWarning,
            stacklevel=2,
        )
        named = [(f"x{i}" if name is None else name, v) for i, (name, v) in enumerate(columns_of(table))]
        if len(named[0][1]) == 0:
            raise SchemaError("the table has no records: at least one is needed")
        check_distinct("the table", [name for name, _ in named])
        columns, refused = [], []
        for i, (name, values) in enumerate(named, 1):
            try:
                columns.append(_draft(i, name, values))
            except SchemaError as error:
                refused.append(str(error))
        if refused:  # reported together, as a wide table can have many
            raise SchemaError("; ".join(refused[:MOST_NAMED]) + "; ..." * (len(refused) > MOST_NAMED))
        try:
            return cls(columns, intercept)
        except SchemaError:  # its message quotes names
            raise SchemaError("no schema can be inferred from this table; declare one") from None

    def to_dict(self) -> dict[str, Any]:
        """Return the declaration as plain numbers, strings, lists and dicts, for ``from_dict``."""
        return {
            "intercept": self.intercept,
            **({} if self.person is None else {"person": self.person}),
            **({"constraints": [str(c) for c in self.constraints]} if self.constraints else {}),
            "columns": [
                {**c.to_dict(), **rule.to_dict(), **display.to_dict()}
                for c, rule, display in zip(self.columns, self.rules, self.displays, strict=True)
            ],
        }

    def _repr_html_(self) -> str:
        """Return a table of the columns for notebooks."""
        columns = self.to_dict()["columns"]
        rows = [
            (c["name"], c["kind"], ", ".join(f"{k} = {v}" for k, v in c.items() if k not in ("name", "kind")))
            for c in columns
        ]
        title = f"Schema: {len(columns)} columns, {self.n_features} features"
        return html_table(title, ("column", "kind", "declaration"), rows)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Schema:
        """Build a schema from a dictionary as ``to_dict`` returns it.

        Raises:
            SchemaError: unknown or missing keys, an unknown kind, or a declaration that is refused.
        """
        entries = _checked_keys(
            "the schema", data, required={"columns"}, optional={"intercept", "constraints", "person"}
        )["columns"]
        if not isinstance(entries, Sequence) or isinstance(entries, str):
            raise SchemaError("columns must be a list")
        columns = [cls._column(entry) for entry in entries]
        rules = {e["name"]: PointRule.of(e["name"], e["kind"], e) for e in entries}
        labels, units = ({e["name"]: e[key] for e in entries if key in e} for key in DISPLAY_KEYS)
        person = data.get("person")
        return cls(
            columns, data.get("intercept", False), rules, data.get("constraints", ()), labels, units, person
        )

    @classmethod
    def _column(cls, entry: object) -> Column:
        if not isinstance(entry, Mapping):
            raise SchemaError("every column must be a table of keys, such as kind and name")
        if not isinstance(entry.get("kind"), str) or entry["kind"] not in cls.kinds:
            seen = (
                f"{told(entry['kind'])}{did_you_mean(entry['kind'], cls.kinds)}"
                if "kind" in entry
                else "none"
            )
            raise SchemaError(
                f"column {entry.get('name')!r}: kind must be one of {', '.join(cls.kinds)}; got {seen}"
            )
        kind = cls.kinds[entry["kind"]]
        missing_level = entry.get("missing_level", False)
        if not isinstance(missing_level, bool):
            raise SchemaError(f"column {entry.get('name')!r}: missing_level must be true or false")
        known = inspect.signature(kind).parameters.values()
        required = {p.name for p in known if p.default is inspect.Parameter.empty}
        keys = _checked_keys(
            f"column {entry.get('name')!r}",
            {k: v for k, v in entry.items() if k != "kind"},
            required=required,
            optional={p.name for p in known} - required | {"missing_level", *KEYS, *DISPLAY_KEYS},
        )
        others = ("missing_level", *KEYS, *DISPLAY_KEYS)
        column = kind(**{k: v for k, v in keys.items() if k not in others})
        return MissingLevel(column) if missing_level else column

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a .toml or .json file.

        Raises:
            SchemaError: another extension, an unreadable file, or an error of ``from_dict``.
        """
        file = schema_file(path)
        try:
            text = file.read_text("utf-8-sig")
            data = tomllib.loads(text) if file.suffix == ".toml" else json.loads(text)
        except OSError as error:
            raise SchemaError(
                f"schema file {file}: {(error.strerror or 'cannot be read').lower()}"
            ) from error
        except (ValueError, RecursionError) as error:
            raise SchemaError(
                f"schema file {file} is not valid {file.suffix[1:].upper()}: {error}"
            ) from error
        if not isinstance(data, Mapping):
            raise SchemaError(f"{file.name}: the schema must be an object with the key 'columns'")
        return cls.from_dict(data)

    def save(self, path: str | Path) -> None:
        """Write a .toml or .json file that ``load`` reads back as an equal schema."""
        file = schema_file(path)
        file.write_text(self.to_text(file.suffix), "utf-8")

    def to_text(self, suffix: str = ".toml") -> str:
        """Return the contents of a .toml or .json file."""
        data = self.to_dict()
        if suffix == ".toml":
            return _toml(data) + "\n"
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def schema_file(path: str | Path) -> Path:
    """Return the path of a schema file.

    Raises:
        SchemaError: its name does not end in .toml or .json.
    """
    file = as_path(path, "a schema file")
    if file.suffix not in (".toml", ".json"):
        raise SchemaError(f"schema file {file}: its name must end in .toml or .json")
    return file


def _checked_keys(
    where: str, given: Mapping[str, Any], *, required: set[str], optional: set[str]
) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise SchemaError(f"{where}: a table of keys is needed, got {told(given)}")
    given = {str(key): value for key, value in given.items()}
    unknown, missing = sorted(set(given) - required - optional), sorted(required - set(given))
    if unknown:
        hints = ", ".join(f"{key!r}{did_you_mean(key, required | optional)}" for key in unknown)
        raise SchemaError(
            f"{where}: unknown keys {hints}; known are {', '.join(sorted(required | optional))}"
        )
    if missing:
        raise SchemaError(f"{where}: missing keys {', '.join(missing)}")
    return dict(given)


def _draft(number: int, name: str, values: Any) -> Column:
    """Infer the declaration of the ``number``-th column. Errors state its number: its name may be a cell.

    The column is numeric if most cells are numbers or the text of one, else categorical.
    """
    where = f"column {number} of the table"
    x, unreadable = read_numbers(values)
    texts, text_missing = _texts_of(values)
    finite, votes = x[np.isfinite(x)], int(np.count_nonzero(~np.isnan(x)))
    column: Numeric | Categorical
    if votes > np.count_nonzero(unreadable):
        holes = bool(np.any(np.isnan(x)))
        try:
            column = _draft_numeric(name, finite)
        except (
            SchemaError,
            ValueError,
        ):  # the messages quote the name and the bounds, or there is no finite number
            raise SchemaError(f"{where}: no bounds can be inferred from these numbers; declare it") from None
    else:
        holes = text_missing
        if not texts:
            raise SchemaError(f"{where}: neither numbers nor text; leave it out, or convert it")
        if len(texts) > min(_MOST_CATEGORIES, max(_FEW_CATEGORIES, len(values) // 2)):
            raise SchemaError(
                f"{where}: too many distinct texts for categories, as in a column of names or identifiers; "
                "leave it out, or declare it"
            )
        column = Categorical(name, texts, outside="ignore")
    return MissingLevel(column) if holes else column


def _texts_of(values: Any) -> tuple[list[str], bool]:
    """Return the distinct texts of a column, sorted, and whether a cell is missing."""
    found = text_positions(values, {})
    held = [values.to_pylist() if hasattr(values, "to_pylist") else values.tolist()][0]
    texts = {str(held[k]) for k in np.flatnonzero((found != MISSING) & (found != UNREADABLE))}
    return sorted(texts), bool(np.any(found == MISSING))


def _draft_numeric(name: str, x: NDArray[np.float64]) -> Numeric:
    whole = bool(np.all(x == np.rint(x)))
    return numeric_between(name, float(x.min()), float(x.max()), least_step=Fraction(int(whole)))


def numeric_between(
    name: str,
    smallest: float,
    largest: float,
    *,
    least_step: Fraction = Fraction(0),
    na_values: Sequence[str | float] = (),
) -> Numeric:
    """Return a column with about 100 grid points between round bounds that contain two numbers."""
    low, high = Fraction(repr(smallest)), Fraction(repr(largest))
    # A constant column gets a positive width; every width is large enough to divide in 64-bit floats.
    width = max(high - low or max(abs(high), Fraction(1)), Fraction(1, 10**300))
    step = max(_round_up(width / _GRID_LEVELS), least_step)
    low = math.floor(low / step) * step
    high = max(math.ceil(high / step) * step, low + step)
    span = next(k for k in _GRID_SPANS if low + k * step >= high)
    return Numeric(name, low, high, step, one=low + span * step, na_values=na_values)


def _round_up(q: Fraction) -> Fraction:
    """Round ``q`` > 0 up to 1, 2 or 5 times a power of ten."""
    power = Fraction(10) ** (math.floor(math.log10(q.numerator) - math.log10(q.denominator)) - 1)
    return next(m * power for m in (1, 2, 5, 10, 20, 50, 100, 200) if m * power >= q)


def _toml(data: Mapping[str, Any]) -> str:
    """Write the dictionary of a schema as TOML; its scalars and lists have the same syntax in JSON."""

    blocks = ["\n".join(toml_line(k, v) for k, v in data.items() if k != "columns")]
    for column in data["columns"]:
        blocks.append("\n".join(["[[columns]]", *(toml_line(k, v) for k, v in column.items())]))
    return "\n\n".join(blocks)


def toml_line(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        pairs = (toml_line(json.dumps(k, ensure_ascii=False), v) for k, v in value.items())
        return f"{key} = {{ {', '.join(pairs)} }}"
    text = json.dumps(value, ensure_ascii=False).replace(
        "\x7f", "\\u007f"
    )  # TOML, unlike JSON, requires DEL to be escaped
    return f"{key} = {text}"

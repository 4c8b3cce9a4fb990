"""Columns of numbers in linear models and scorecards: one weight per unit, or a weight for each bin."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from privopt.mechanisms.estimators.public_facts import any_schema, public_delta
from privopt.mechanisms.privacy.accounting import gaussian_mu
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import Constraint, bounds_of
from privopt.problems.tables.columns import Binned
from privopt.problems.tables.cuts import has_bins
from privopt.problems.tables.missing import plain_column
from privopt.problems.tables.point_columns import point_columns, rules_of
from privopt.problems.tables.schema import Schema

BINS, LINES, AUTO = "bins", "lines", "auto"
# "auto" puts numbers in bins if n mu is at least _ENOUGH, or with more than two classes _PER_CLASS a class.
# Mean AUC of two classes with bins, minus mean AUC with lines, at n mu = 30, 60, 100 and 150: +.018, +.019,
# +.019 and +.026 (standard error .015) on 28 real tables with numbers, where lines were up to .3 behind naive
# Bayes if effects are not monotone, and bins up to .07; +.014, +.009, +.006 and +.013 on 20 synthetic tables,
# a third of whose effects are linear; -.025, -.026, -.014 and -.010 on 11 tables whose effects are all
# linear. At n mu = 15 the mean differences are within one standard error of 0. With 3 to 11 classes bins were
# as accurate as lines at n mu = 250.
_ENOUGH, _PER_CLASS = 30.0, 75.0


class _Fit(Protocol):
    """The public arguments of a fit."""

    epsilon: float
    delta: float | str
    numbers: str
    schema: Schema | dict[str, Any] | str | Path | None


def fitted_schema(
    fit: _Fit, schema: Schema, n_records: int, *, open_choice: bool, threshold: bool, classes: int
) -> Schema:
    """Return the schema with which a model is fitted: the declared one, or this schema with numbers in bins.

    Args:
        fit: the estimator.
        schema: the declared schema.
        n_records: n, public.
        open_choice: whether everything that depends on the features has its default; otherwise "auto" leaves
            numbers as lines.
        threshold: whether the score has a constant. Without a constant, "auto" takes bins at any budget: a
            line is 0 where the number is 0, while the weights of bins can include a constant, as every record
            is in one bin.
        classes: the number of classes.

    Raises:
        InvalidInputError: ``numbers`` is none of "auto", "bins" and "lines".
    """
    check_numbers(fit.numbers)
    if fit.numbers == BINS:
        return schema.with_bins()
    if fit.numbers == LINES or not (open_choice and any(map(has_bins, schema.columns))) or n_records < 2:
        return schema
    mu = gaussian_mu(check_epsilon(fit.epsilon), public_delta(fit.delta, n_records))
    enough = _ENOUGH if classes <= 2 else _PER_CLASS * classes
    return schema.with_bins() if n_records * mu >= enough or not threshold else schema


def is_default(given: object, default: str) -> bool:
    """Return whether an argument, of any type including arrays, is the text ``default``."""
    return isinstance(given, str) and given == default


def check_numbers(numbers: object) -> None:
    """Raise InvalidInputError unless ``numbers`` is one of "auto", "bins" and "lines"."""
    if not isinstance(numbers, str) or numbers not in (AUTO, BINS, LINES):
        raise InvalidInputError(f'numbers must be "{AUTO}", "{BINS}" or "{LINES}", got {told(numbers)}')


def rules_for_lines(schema: Schema, constraints: Sequence[Constraint]) -> bool:
    """Return whether bounds on points, in constraints or columns, have another meaning for bins than lines.

    For a line they bound the points that a number gains from ``zero`` to ``one``; for bins they bound the
    points of a record. Both meanings are the same if lines within the bounds give records exactly the points
    within the bounds.
    """
    found = (*constraints, *rules_of(schema.columns, schema.rules))
    for column, kind in zip(point_columns(schema.columns), schema.columns, strict=True):
        for low, high in bounds_of(found, (column,)).values() if has_bins(kind) else ():
            assert column.ends is not None
            reached = [points * end for points in (low, high) for end in column.ends]
            if (math.floor(min(reached)), math.ceil(max(reached))) != (low, high):
                return True
    return False


def reason_with_bins(reason: str, fit: _Fit, fitted: Schema) -> str:
    """Return the reason for a mechanism; if bins were added to the declared schema, the reason says so.

    All bins of an inferred schema were added.
    """
    declared = () if fit.schema is None else any_schema(fit.schema).columns
    if any(isinstance(plain_column(c)[0], Binned) and c not in declared for c in fitted.columns):
        return f"{reason}; each number has a weight for each of its bins"
    return reason

"""Text form of constraints on points, for schema files, Python and the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable

from privopt.problems.arguments import told
from privopt.problems.errors import InvalidInputError
from privopt.problems.programs.constraints import (
    Constraint,
    Implication,
    Monotone,
    PointBounds,
    PointList,
    Sign,
    Total,
    UsedColumns,
)

FORMS = (
    "points(age) in [-3, 3]",
    "points in {0, 1, 2, 5}",
    "sign(age) = +",
    "monotone(age) = rising",
    "at most 5 columns",
    "at most 1 of a, b",
    "at least 2 of a, b, c",
    "any of a, b",
    "all of a, b",
    "if a then b",
    "total in [-10, 10]",
    "total(a, b) in [0, 6]",
)

# A name in double quotes, or without quotes, commas and brackets. A name that contains " then " needs quotes.
_NAME = r'"(?:[^"\\]|\\.)*"|[^",(){}\[\]]+?'
_NAMES = rf"(?:{_NAME})(?:\s*,\s*(?:{_NAME}))*"
_RANGE = r"\[\s*([-+]?\d+)\s*,\s*([-+]?\d+)\s*\]"
_GROUP = rf"(?:\s*\(\s*({_NAMES})\s*\))"
_SIGNS = {"+": 1, "positive": 1, "-": -1, "\u2212": -1, "negative": -1}
_WAYS = {"rising": 1, "up": 1, "falling": -1, "down": -1}
# Words of constraints on errors and records, which get a special message: only records decide whether they
# hold.
_RECORDS = re.compile(
    r"\b(tpr|fpr|tnr|fnr|ppv|npv|auc|sensitivity|specificity|recall|precision|accuracy|errors?|false alarms?"
    r"|(?:true|false)[- _]?(?:positives?|negatives?)|positives?|negatives?|parity|calibration|records?)\b",
    re.IGNORECASE,
)


def _bounds(names: str | None, low: str, high: str) -> Constraint:
    return PointBounds(_split(names), *_ordered(low, high))


def _list(names: str | None, values: str) -> Constraint:
    return PointList(_split(names), tuple(sorted({int(v) for v in values.split(",")})))


def _sign(names: str, sign: str) -> Constraint:
    return Sign(_split(names), 1 if _SIGNS[sign.lower()] > 0 else -1)


def _monotone(names: str, way: str) -> Constraint:
    return Monotone(_split(names), 1 if _WAYS[way.lower()] > 0 else -1)


def _columns(side: str, count: str) -> Constraint:
    return _count((), side, int(count))


def _some(side: str, count: str, names: str) -> Constraint:
    return _count(_split(names), side, int(count))


def _count(names: tuple[str, ...], side: str, count: int) -> Constraint:
    return UsedColumns(names, 0, count) if side.lower() == "most" else UsedColumns(names, count, None)


def _group(which: str, names: str) -> Constraint:
    group = _split(names)
    return UsedColumns(group, 1 if which.lower() == "any" else len(group), None)


def _implication(used: str, needed: str) -> Constraint:
    return Implication(_name(used), _name(needed))


def _total(names: str | None, low: str, high: str) -> Constraint:
    return Total(_split(names), *_ordered(low, high))


_READERS: tuple[tuple[str, Callable[..., Constraint]], ...] = (
    (rf"points{_GROUP}?\s+in\s+{_RANGE}", _bounds),
    (rf"points{_GROUP}?\s+in\s+\{{\s*([-+]?\d+(?:\s*,\s*[-+]?\d+)*)\s*\}}", _list),
    (rf"sign{_GROUP}\s*=\s*(\+|-|\u2212|positive|negative)", _sign),
    (rf"monotone{_GROUP}\s*=?\s*(rising|falling|up|down)", _monotone),
    (r"at\s+(most|least)\s+(\d+)\s+columns?", _columns),
    (rf"at\s+(most|least)\s+(\d+)\s+of\s+({_NAMES})", _some),
    (rf"(any|all)\s+of\s+({_NAMES})", _group),
    (rf"if\s+({_NAME})\s+then\s+({_NAME})", _implication),
    (rf"total{_GROUP}?\s+in\s+{_RANGE}", _total),
)
_FORMS = tuple((re.compile(pattern, re.IGNORECASE), reader) for pattern, reader in _READERS)


def parse_constraint(text: str) -> Constraint:
    """Read one constraint, such as "any of age, income"; ``FORMS`` has an example of each kind.

    Raises:
        InvalidInputError: text that is no constraint on points; for a constraint on records the message says
            why it is refused.
    """
    line = " ".join(text.split())
    for pattern, reader in _FORMS:
        if found := pattern.fullmatch(line):
            return reader(*found.groups())
    if found := _RECORDS.search(line):
        raise InvalidInputError(
            f"constraint {told(text)}: {found.group(0)} is a fact about records, which only the records can "
            "tell: whether a card satisfies it would leak, outside the budget. Constraints are on points. To "
            "do: price the errors instead, --class-weight no=1,yes=5 (class_weight), and measure the card "
            "privately with `privopt evaluate`"
        )
    raise InvalidInputError(
        f"constraint {told(text)} is none that privopt reads; there are: {'; '.join(FORMS)}. Names with "
        "commas or brackets are in double quotes"
    )


def parse_constraints(given: object) -> tuple[Constraint, ...]:
    """Read a list of constraints, each a text or a ``Constraint``; duplicates are dropped.

    Raises:
        InvalidInputError: as ``parse_constraint``; or no list.
    """
    if given is None:
        return ()
    if isinstance(given, str | Constraint) or not isinstance(given, Iterable):
        raise InvalidInputError(
            f'constraints are a list, such as ["at most 5 columns", "any of a, b"]; got {told(given)}'
        )
    found: dict[Constraint, None] = {}
    for one in given:
        if not isinstance(one, str | Constraint):
            raise InvalidInputError(f"a constraint is a text such as 'any of a, b'; got {told(one)}")
        found[one if isinstance(one, Constraint) else parse_constraint(one)] = None
    return tuple(found)


def _ordered(low: str, high: str) -> tuple[int, int]:
    if int(low) > int(high):
        raise InvalidInputError(f"[{low}, {high}] in a constraint is empty: the lower bound comes first")
    return int(low), int(high)


def _split(names: str | None) -> tuple[str, ...]:
    return () if names is None else tuple(_name(n) for n in re.findall(rf"(?:{_NAME})(?=\s*(?:,|$))", names))


def _name(text: str) -> str:
    bare = text.strip()
    return str(json.loads(bare)) if bare.startswith('"') else bare

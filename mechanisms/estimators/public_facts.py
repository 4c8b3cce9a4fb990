"""Public facts of a fit (schema, delta), and the warning for facts inferred from private data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from privopt.mechanisms.privacy.parameters import check_delta
from privopt.problems.errors import InvalidInputError, PrivacyLeakWarning, SchemaError
from privopt.problems.tables.schema import Schema


def declared_schema(given: Schema | dict[str, Any] | str | Path) -> Schema:
    """Convert a schema argument (a ``Schema``, a dictionary or the path of a file) to a ``Schema``.

    Raises:
        SchemaError: no such file, an invalid declaration, or one with a column of persons, as the caller
            protects single records, not persons.
    """
    schema = any_schema(given)
    if schema.person is not None:
        raise SchemaError(
            f"the schema declares {schema.person!r} as the column of persons, but single records are "
            "protected here, not persons. To do: schema.for_records() (in a file delete the line person = "
            "...), and person=... where that is a parameter"
        )
    return schema


def any_schema(given: Schema | dict[str, Any] | str | Path) -> Schema:
    """Convert a schema argument to a ``Schema``, which may have a column of persons."""
    if isinstance(given, Schema):
        return given
    return Schema.from_dict(given) if isinstance(given, dict) else Schema.load(given)


def public_delta(delta: float | str, n: int) -> float:
    """Return delta; "auto" means 1/n^2."""
    if isinstance(delta, str) and delta != "auto":
        raise InvalidInputError(f'delta must be a number in (0, 1) or "auto", got {delta!r}')
    if isinstance(delta, str) and n < 2:
        raise InvalidInputError("n_samples = 1: delta = 1/n^2 needs 2 records or more; give delta")
    return 1.0 / n**2 if isinstance(delta, str) else check_delta(delta, zero_allowed=True)


def leak(message: str) -> None:
    """Warn with a ``PrivacyLeakWarning`` that a fact was inferred from private data."""
    warnings.warn(message, PrivacyLeakWarning, stacklevel=4)

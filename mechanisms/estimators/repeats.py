"""Warnings that the spends of releases of the same records add up, if there is no ledger to add them.

This is a convenience without guarantee: tables are compared by identity, never by their cells, so copies,
parts and other processes go unnoticed. For this reason, the warning depends on no cell.
"""

from __future__ import annotations

import warnings
import weakref
from dataclasses import dataclass

from privopt.mechanisms.privacy.spend import PrivacySpend


class RepeatedReleaseWarning(UserWarning):
    """Releases of the same records without a ledger: their privacy spends add up."""


@dataclass(frozen=True)
class _Released:
    """Sum of the spends of releases of a table, with a weak reference to the table."""

    table: weakref.ref[object]
    epsilon: float
    delta: float
    number: int


_RELEASED: dict[int, _Released] = {}  # by the identity of the table


def warn_of_repeat(table: object, spend: PrivacySpend) -> None:
    """Warn at the second release of a table in this process, with the sum of both spends.

    Releases with reproducible noise have no guarantee and are not counted.
    """
    key = id(table)
    try:
        reference = weakref.ref(table, lambda _: _RELEASED.pop(key, None))
    except TypeError:  # objects without weak references, such as lists and None, are ignored
        return
    if not spend.adds_up:
        return
    before = _RELEASED.get(key, _Released(reference, 0.0, 0.0, 0))
    now = _Released(
        before.table, before.epsilon + spend.epsilon, before.delta + spend.delta, before.number + 1
    )
    _RELEASED[key] = now
    if now.number == 2:
        warnings.warn(
            f"this is the second release of the same table: their privacy adds up to epsilon = "
            f"{now.epsilon:g}, delta = {now.delta:.3g}, and further ones are not reported. To do: "
            "`with budget(epsilon=..., delta=...):` around them all, or ledger=..., which add up and refuse",
            RepeatedReleaseWarning,
            stacklevel=5,
        )

"""Public constraints of a schema on the points of a column; every mechanism that fits points obeys them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from privopt.problems.errors import SchemaError
from privopt.problems.programs.constraints import MOST_POINTS

KEYS = ("monotone", "points")


@dataclass(frozen=True)
class PointRule:
    """Constraints on the points of one column.

    Attributes:
        monotone: "rising": points do not decrease in the bins or numbers; "falling": they do not increase;
            None: no constraint. The missing level is not constrained.
        points: (low, high), integer bounds on the points of each level; None: the mechanism's default.
    """

    monotone: Literal["rising", "falling"] | None = None
    points: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.points is not None and max(map(abs, self.points)) > MOST_POINTS:
            raise SchemaError(
                f"points of a column are at most 2^62, got {self.points[0]} to {self.points[1]}"
            )

    @classmethod
    def of(cls, name: str, kind: str, given: Mapping[str, Any]) -> Self:
        """Read the keys ``monotone`` and ``points`` of a column.

        Raises:
            SchemaError: invalid values, or a monotone constraint on a column without an order.
        """
        monotone, points = given.get("monotone"), given.get("points")
        if monotone not in (None, "rising", "falling"):
            raise SchemaError(f'column {name!r}: monotone is "rising" or "falling"; got {monotone!r}')
        if monotone is not None and (kind == "categorical" or given.get("part") is not None):
            levels = "categories" if kind == "categorical" else "weekdays and months"
            raise SchemaError(f"column {name!r}: {levels} have no order; monotone is for numbers and bins")
        if points is None:
            return cls(monotone, None)
        whole = isinstance(points, list | tuple) and all(type(p) is int for p in points)
        if not whole or len(points) != 2 or points[0] > points[1]:
            raise SchemaError(
                f"column {name!r}: points are [LOW, HIGH], two integers in order; got {points!r}"
            )
        return cls(monotone, (points[0], points[1]))

    def to_dict(self) -> dict[str, Any]:
        """Return the constraints as keys of a schema file."""
        points = None if self.points is None else list(self.points)
        return {k: v for k, v in (("monotone", self.monotone), ("points", points)) if v is not None}

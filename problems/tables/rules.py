"""What a schema may ask of the points of a column: public wishes, kept by whatever makes the points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from privopt.problems.errors import SchemaError

KEYS = ("monotone", "points")


@dataclass(frozen=True)
class PointRule:
    """Wishes for one column.

    Attributes:
        monotone: "rising" wants no fewer points for higher bins or numbers, "falling" no more; None: as they
            come. The missing level is free.
        points: (low, high), bounds on the points of each level, two integers; None: the mechanism's own.
    """

    monotone: Literal["rising", "falling"] | None = None
    points: tuple[int, int] | None = None

    @classmethod
    def of(cls, name: str, kind: str, given: Mapping[str, Any]) -> Self:
        """Read the keys ``monotone`` and ``points`` of a column.

        Raises:
            SchemaError: values that there are not, or a monotone column without an order.
        """
        monotone, points = given.get("monotone"), given.get("points")
        if monotone not in (None, "rising", "falling"):
            raise SchemaError(f'column {name!r}: monotone is "rising" or "falling"; got {monotone!r}')
        if monotone is not None and kind == "categorical":
            raise SchemaError(f"column {name!r}: categories have no order; monotone is for numbers and bins")
        if points is None:
            return cls(monotone, None)
        whole = isinstance(points, list | tuple) and all(type(p) is int for p in points)
        if not whole or len(points) != 2 or points[0] > points[1]:
            raise SchemaError(
                f"column {name!r}: points are [LOW, HIGH], two integers in order; got {points!r}"
            )
        return cls(monotone, (points[0], points[1]))

    def to_dict(self) -> dict[str, Any]:
        """The keys of a file."""
        points = None if self.points is None else list(self.points)
        return {k: v for k, v in (("monotone", self.monotone), ("points", points)) if v is not None}

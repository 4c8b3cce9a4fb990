"""Conditions on a risk that make descent converge fast: public assumptions, on which no privacy rests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class PolyakLojasiewicz:
    """Condition |grad F(w)|^2 >= 2 constant (F(w) - min F), for all w that a descent visits.

    Neither convexity nor a single minimum follows. c-strongly convex functions satisfy it with constant c,
    and compositions c-strongly convex o A with c times the least eigenvalue of A'A that is not 0, so least
    squares do with dependent columns, too (Karimi, Nutini and Schmidt 2016).

    Raises:
        InvalidInputError: a constant that is not finite and > 0.
    """

    constant: float

    def __post_init__(self) -> None:
        if not (math.isfinite(check_real(self.constant, "constant")) and self.constant > 0):
            raise InvalidInputError(f"constant must be finite and > 0, got {self.constant}")

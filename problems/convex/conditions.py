"""Conditions on a risk that make descent converge fast: public assumptions, on which no privacy rests."""

from __future__ import annotations

import math
from dataclasses import dataclass

from privopt.problems.arguments import check_real
from privopt.problems.errors import InvalidInputError


@dataclass(frozen=True)
class PolyakLojasiewicz:
    """Condition |grad F(w)|^2 >= 2 constant (F(w) - min F), for all w that a descent visits.

    It implies neither convexity nor a unique minimum. A c-strongly convex function f satisfies the
    condition with constant c, and w -> f(A w) with c times the least nonzero eigenvalue of A'A. So least
    squares satisfy the condition even if columns are dependent (Karimi, Nutini and Schmidt 2016).

    Raises:
        InvalidInputError: a constant that is not finite and > 0.
    """

    constant: float

    def __post_init__(self) -> None:
        if not (math.isfinite(check_real(self.constant, "constant")) and self.constant > 0):
            raise InvalidInputError(f"constant must be finite and > 0, got {self.constant}")

"""The two minimisation questions over a lattice."""

from __future__ import annotations

from enum import Enum


class Task(Enum):
    """The two minimisation questions of oracle-efficient private optimization."""

    LINEAR = "argmin over w of L(D, w) + separable terms in w"
    NORMALIZED = "argmin over w of L(D, w) + separable terms in w + a function of |w|^2"

"""Soft truncation (Catoni and Giulini 2017): the identity near 0, constant far out, smooth between."""

from __future__ import annotations

import math

EDGE = math.sqrt(2.0)
# The largest influence of a record on a robust mean, in units of scale / n: the maximum of |phi|, which also
# bounds any average of phi.
INFLUENCE = 2 * math.sqrt(2.0) / 3

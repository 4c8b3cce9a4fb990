"""Soft truncation (Catoni and Giulini 2017): the identity near 0, constant far out, smooth between."""

from __future__ import annotations

import math

EDGE = math.sqrt(2.0)
# The largest influence of a record on a robust mean, in units of its scale / n: |phi|, and so any average of
# it.
INFLUENCE = 2 * math.sqrt(2.0) / 3

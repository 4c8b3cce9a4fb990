"""Audits of the mechanisms for risks that are not convex, as ``privopt.mechanisms.audit.convex`` does it.

Langevin dynamics on a record far out are an affine function of the noise, like gradient descent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from privopt.mechanisms.audit.claims import AuditedClaim
from privopt.mechanisms.audit.convex import gradient_claims
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.problems.convex.sets.whole_space import WholeSpace

NONCONVEX_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    DPLangevin.name: partial(gradient_claims, DPLangevin, WholeSpace(1)),
}

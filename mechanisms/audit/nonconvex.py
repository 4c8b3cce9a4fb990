"""Audits of the mechanisms for risks that are not convex, as ``privopt.mechanisms.audit.convex`` does it.

Langevin dynamics on a record far out are an affine function of the noise, like gradient descent. A net has
finitely many points, whose probabilities the exponential mechanism states.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from privopt.mechanisms.audit.claims import AuditedClaim
from privopt.mechanisms.audit.convex import (
    Records,
    binned,
    gradient_claims,
    outlier,
    risk_claim,
)
from privopt.mechanisms.audit.laws import output_law
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.problems.convex.sets.norm_balls import L2Ball
from privopt.problems.convex.sets.whole_space import WholeSpace
from privopt.problems.nonconvex.net import NetProblem

Floats = NDArray[np.float64]

_EPSILON = 1.0


def _net() -> tuple[AuditedClaim, ...]:
    """Others hold the choice at one end of an interval: the other end is worth nearly the whole claim."""
    pair = outlier(others=8)
    plan = NetMechanism.plan(pair[0].facts, L2Ball(1, 1.0), epsilon=_EPSILON, alpha=0.25)
    points = plan.net.points(np.concatenate(list(plan.net.lattice.batches())))[:, 0]
    edges = (points[1:] + points[:-1]) / 2

    def law(one: NetMechanism, records: Records) -> Floats:
        return output_law(one.draw, NetProblem(records.risk(), one.net))

    louder = dataclasses.replace(plan.draw, beta=2 * plan.draw.beta)
    mutants = {"beta doubled": dataclasses.replace(plan, draw=louder)}
    return (risk_claim(plan, pair, "outlier", binned(edges), law, mutants),)


NONCONVEX_AUDITS: Mapping[str, Callable[[], tuple[AuditedClaim, ...]]] = {
    DPLangevin.name: partial(gradient_claims, DPLangevin, WholeSpace(1)),
    NetMechanism.name: _net,
}

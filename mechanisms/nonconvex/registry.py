"""Mechanisms for risks that are not convex, by name, beside the others that minimise risks."""

from __future__ import annotations

from privopt.mechanisms.convex.registry import RISK_MECHANISMS
from privopt.mechanisms.nonconvex.constrained import DPConstrainedStationaryPoint
from privopt.mechanisms.nonconvex.langevin import DPLangevin
from privopt.mechanisms.nonconvex.net import NetMechanism
from privopt.mechanisms.nonconvex.newton import DPCubicNewton
from privopt.mechanisms.nonconvex.spider import DPSpider
from privopt.mechanisms.nonconvex.stationary import DPStationaryPoint
from privopt.mechanisms.risk.mechanism import RiskMechanism

NONCONVEX: tuple[type[RiskMechanism], ...] = (
    DPLangevin,
    NetMechanism,
    DPStationaryPoint,
    DPCubicNewton,
    DPSpider,
    DPConstrainedStationaryPoint,
)

__all__ = ["NONCONVEX", "RISK_MECHANISMS"]

# The convex family knows nothing of this one: who wants all names imports them from here.
RISK_MECHANISMS.update({m.name: m for m in NONCONVEX})

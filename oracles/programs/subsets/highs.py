"""Best subsets by outer approximation over HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from privopt.oracles.minimize.mip.highs import HighsSession, loads
from privopt.oracles.minimize.mip.model import MipModel, Session
from privopt.oracles.minimize.mip.worker_process import RemoteSession
from privopt.oracles.programs.subsets.outer_approximation import OuterApproximation


@dataclass(frozen=True)
class HighsSubsets(OuterApproximation):
    """Best subsets with HiGHS."""

    name: ClassVar[str] = "highs"

    def open(self, model: MipModel) -> Session:
        return HighsSession(model) if loads() else RemoteSession(HighsSession, model)

"""Base class of the MIP solvers of card programs."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from privopt.oracles.limits import Watch
from privopt.oracles.minimize.mip.model import Library, MipModel, Outcome, Question, Session
from privopt.oracles.programs.interface import GAP, ProgramOracle, ProgramProposal
from privopt.oracles.programs.model import CardModel
from privopt.problems.programs.program import CardProgram


class MipProgramOracle(ProgramOracle):
    """Solves the mixed-integer model of a card program; a subclass is a frozen dataclass with ``open``.

    ``library`` is the Python package that the subclass needs. It is checked when an instance is made.
    """

    library: ClassVar[Library | None] = None

    def __post_init__(self) -> None:
        if self.library is not None:
            self.library.require(self.name)

    @abstractmethod
    def open(self, model: MipModel) -> Session:
        """Load a complete model into the solver, and return the session that solves it."""

    def propose(self, program: CardProgram, watch: Watch) -> ProgramProposal:
        built = CardModel(program)
        answer = self.open(built.model).solve(Question(built.costs, gap=GAP), watch, lambda _: None)
        point = None if answer.values is None else built.points(answer.values)
        return ProgramProposal(point, answer.outcome is not Outcome.STOPPED, answer.raw)

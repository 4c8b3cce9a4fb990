"""Privacy budget of a scorecard with risks, split between the card and a histogram of its scores."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Self

from privopt.mechanisms.evaluation.bins import ScoreBins, risk_bins
from privopt.mechanisms.evaluation.histogram import HistogramPlan, ScoreHistogram
from privopt.mechanisms.privacy.noise import NoiseSource
from privopt.mechanisms.privacy.parameters import check_epsilon
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import IntArray
from privopt.problems.errors import InvalidInputError
from privopt.problems.tables.schema import Schema


@dataclass(frozen=True)
class CardBudget:
    """Split of epsilon between card and risks, fixed before data are read.

    Privacy: card and histogram together are (epsilon, delta)-differentially private, for data sets that
    differ by replacing one record; n is public. The card is (card, delta)-private. The bins of the histogram
    follow from the released card, and for every card the histogram is ``risks``-private (pure). Basic
    composition covers such adaptive choices (Dwork and Roth 2014, theorem B.1).

    Attributes:
        epsilon: the total budget.
        card, risks: the budgets of card and histogram; ``risks`` is 0 without a table of risks.
    """

    epsilon: float
    card: float
    risks: float

    @classmethod
    def of(cls, epsilon: float, share: float) -> Self:
        """Split epsilon; ``share`` is the share of the risks.

        Raises:
            InvalidInputError: the share is outside [0, 1).
            PrivacyParameterError: the epsilon of the risks is too small for the noise on counts.
        """
        number = isinstance(share, int | float) and not isinstance(share, bool)
        if not number or not 0 <= share < 1:
            raise InvalidInputError(
                f"risk_share is the share of epsilon for the risks, in [0, 1), such as 0.2; got {share!r}"
            )
        epsilon = check_epsilon(epsilon)
        if share == 0:
            return cls(epsilon, epsilon, 0.0)
        card = (1 - share) * epsilon
        risks = math.nextafter(epsilon - card, 0.0)  # rounded down, so that card + risks <= epsilon
        HistogramPlan.plan(ScoreBins((0.0,)), epsilon=risks)  # errors are raised before the card is paid for
        return cls(epsilon, card, risks)

    def whole(self, card: PrivacySpend, what: str = "the points") -> PrivacySpend:
        """Return the spend of a card and its risks together; ``what`` names the card in the note."""
        if not self.risks:
            return card
        note = f"{what} at epsilon = {card.epsilon:.4g}, the risks at {self.risks:.4g}"
        notes = f"; {what}: ".join(part for part in (note, card.note) if part)
        notion = card.notion if card.notion == "pure" else "approximate"
        epsilon = max(self.epsilon, card.epsilon + self.risks)
        return replace(card, epsilon=epsilon, notion=notion, level=None, note=notes)

    def histogram(
        self, schema: Schema, points: IntArray, table: ZeroOneHalfspace, source: NoiseSource
    ) -> ScoreHistogram | None:
        """Release counts of records by score and class; return None if there is no budget for risks."""
        if not self.risks:
            return None
        plan = HistogramPlan.plan(risk_bins(schema, points, table.n_records, self.risks), epsilon=self.risks)
        scores = table.X @ points / schema.denominator
        return plan.release(scores, table.y > 0, source, table.counts)

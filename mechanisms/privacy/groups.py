"""Group privacy: the privacy of a person with k records, from releases with proofs for one record.

Two tables that differ in k records are joined by a chain of k steps, each of which changes one record. So for
groups of k records

- epsilon-DP is k epsilon-DP, and (epsilon, delta)-DP is (k epsilon, delta (1 + e^epsilon + ... +
  e^((k-1) epsilon)))-DP: P[M(D_0) in S] <= e^epsilon P[M(D_1) in S] + delta, and so on along the chain;
- rho-zCDP is k^2 rho-zCDP (Bun and Steinke 2016, proposition 1.9);
- mu-GDP is k mu-GDP (Dong, Roth and Su 2022, theorem 2.14).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from privopt.mechanisms.errors import PlanMismatchError, PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_count, check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend

# Users give this word in place of a number of records per person; the number is then learned.
LEARN = "learn"

# Factors that round toward privacy. The budget of a record is rounded down, because the conversions of mu or
# rho are inverse to each other only up to 1e-10; the spends that follow from that budget are rounded up.
_DOWN, _UP = 1 - 2.0**-26, 1 + 2.0**-50


@dataclass(frozen=True)
class PersonBudget:
    """A budget for a person with at most ``records`` records.

    Attributes:
        epsilon, delta: the guarantee for a person; delta may be 0.
        records: k >= 1.
    """

    epsilon: float
    delta: float
    records: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta, zero_allowed=True))
        object.__setattr__(self, "records", check_count(self.records, "records_per_person"))

    def of_record(self, notion: str) -> tuple[float, float]:
        """Return the (epsilon, delta) of a record, for a release with a proof in this notion.

        Raises:
            PrivacyParameterError: a person may have so many records that nothing of the budget is left for
                one record.
        """
        epsilon, delta = self._share(notion)
        if epsilon == 0:
            raise PrivacyParameterError(
                f"records_per_person = {self.records:,} leaves nothing for a single record: its share of "
                f"epsilon = {self.epsilon:g} is 0 in doubles. To do: a smaller records_per_person (the "
                "first records of each person are then used), or a larger epsilon"
            )
        return epsilon, delta

    def _share(self, notion: str) -> tuple[float, float]:
        if self.records == 1:
            return self.epsilon, self.delta
        if self.delta > 0 and notion in ("gdp", "zcdp"):
            from privopt.mechanisms.privacy.accounting import (
                gaussian_epsilon,
                gaussian_mu,
                zcdp_epsilon,
                zcdp_rho,
            )

            if notion == "gdp":
                mu = gaussian_mu(self.epsilon, self.delta) / self.records
                return gaussian_epsilon(mu * _DOWN, self.delta) * _DOWN, self.delta
            rho = zcdp_rho(self.epsilon, self.delta) / self.records**2
            return zcdp_epsilon(rho * _DOWN, self.delta) * _DOWN, self.delta
        epsilon = self.epsilon / self.records * _DOWN
        return epsilon, self.delta / _chain(epsilon, self.records) * _DOWN

    def of_person(self, spend: PrivacySpend) -> PrivacySpend:
        """Return the spend for a person of a release with this spend for a record.

        Raises:
            PlanMismatchError: the spend is for a person already, or more than the budget.
        """
        if spend.unit != "record":
            raise PlanMismatchError(f"{spend.mechanism} is private for a {spend.unit} already")
        found = self._grouped(spend)
        if found.epsilon > self.epsilon * _UP or found.delta > self.delta * _UP:
            raise PlanMismatchError(
                f"{spend}: {self.records} records of a person cost epsilon = {found.epsilon:g}, delta = "
                f"{found.delta:.3g}, more than {self.epsilon:g} and {self.delta:.3g}: report this"
            )
        note = (
            "one record of each person"
            if self.records == 1
            else f"a person with at most {self.records} records, each protected at epsilon = "
            f"{spend.epsilon:.4g}, delta = {spend.delta:.3g}"
        )
        return replace(
            found,
            neighbours=NEIGHBOURS["person"],
            claim=spend.claim,
            note="; ".join(filter(None, (note, spend.note))),
            insecure_seed=spend.insecure_seed,
        )

    def _grouped(self, spend: PrivacySpend) -> PrivacySpend:
        k = self.records
        if k == 1:
            return spend
        if spend.notion == "gdp" and spend.level is not None:
            return PrivacySpend.gdp(k * spend.level * _UP, self.delta, spend.mechanism)
        if spend.notion == "zcdp" and spend.level is not None:
            return PrivacySpend.zcdp(k * k * spend.level * _UP, self.delta, spend.mechanism)
        epsilon = k * spend.epsilon * _UP
        if spend.notion == "pure":
            return PrivacySpend.pure(epsilon, spend.mechanism)
        delta = spend.delta * _chain(spend.epsilon, k) * _UP
        return PrivacySpend.approximate(epsilon, min(delta, 1 - 2.0**-53), spend.mechanism)


def _chain(epsilon: float, k: int) -> float:
    """Return 1 + e^epsilon + ... + e^((k-1) epsilon), infinite beyond the range of doubles."""
    try:
        return math.expm1(k * epsilon) / math.expm1(epsilon) * _UP
    except OverflowError:
        return math.inf

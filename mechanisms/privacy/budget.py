"""Privacy budgets and the composition rules by which spends add up.

The rule of a budget is fixed when the budget is created. Parameters of later releases may depend on earlier
results. Such fully adaptive composition is proved for each rule separately: Rogers et al. 2016 for "basic",
Whitehouse et al. 2023 for "zcdp", Smith and Thakurta 2022 for "gdp" and "profile". Such composition is not
proved for the best of several rules, nor for privacy loss distributions. For releases whose parameters are
fixed in advance, ``compose`` takes the best rule.

Sums are exact (``Spent``): every spend is a double, that is, an integer over a power of two, and a sum of
such fractions is again one. A decision from stored sums is therefore identical to a decision from the whole
history.

Conversions are imported lazily, so that a ledger with the rule "basic" opens without NumPy.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.parameters import check_delta, check_epsilon
from privopt.mechanisms.privacy.spend import NEIGHBOURS, PrivacySpend
from privopt.problems.arguments import check_type, told

RULES = ("basic", "zcdp", "gdp", "profile")
# Relative tolerance, so that ten spends of 0.1 fit a budget of 1. Spends and budgets are doubles, within a
# relative 2^-53 of the decimals that users write. With a tolerance of 2^-52, spends that fit a budget as
# decimals fit it as doubles.
_ROUNDING = 1 + Fraction(1, 1 << 52)
# Relative tolerance for sums of squares; the conversions keep a larger margin of their own.
_CONVERTED = 1 + Fraction(1, 10**15)
_TINY, _HUGE = 1e-300, sys.float_info.max  # smallest and largest value of a square
_VAST = 1e300  # a larger rho or mu^2 is itself stated as epsilon


@dataclass(frozen=True)
class Total:
    """A valid (epsilon, delta) of a sequence of releases, and the rule by which it was computed."""

    epsilon: float
    delta: float
    rule: str


@dataclass(frozen=True)
class Spent:
    """Exact sums of spends under a rule.

    Attributes:
        strength: the sum of epsilons ("basic"), of rho ("zcdp") or of mu^2 ("gdp", "profile").
        delta: the sum of all deltas under "basic"; under other rules, of the deltas of approximate releases;
            under "profile", of the probabilities that releases disclose everything.
    """

    strength: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.strength + other.strength, self.delta + other.delta)

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.strength - other.strength, self.delta - other.delta)


@dataclass(frozen=True)
class Budget:
    """A total privacy budget, and the rule by which releases are composed.

    Attributes:
        epsilon, delta: the total guarantee, epsilon > 0, 0 <= delta < 1.
        rule: "basic" adds epsilons and deltas. "zcdp" adds rho, keeping half of delta for the conversion and
            half for releases that have a delta of their own. "gdp" adds mu^2 and takes GDP and pure releases;
            gradient mechanisms on full batches are GDP, and compose to exactly one Gaussian release.
            "profile" takes all releases: it counts each release as a Gaussian one that, except with a small
            probability, is at most as private, and adds the mu^2 of these Gaussian releases; half of delta is
            kept for the small probabilities. Sampled releases (DP-SGD) get that Gaussian from their whole
            privacy profile (``profiles.with_gaussian``).
        unit: the unit of privacy, "record" or "person"; releases of the other unit are refused.
    """

    epsilon: float
    delta: float = 0.0
    rule: str = "basic"
    unit: str = "record"

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        if not isinstance(self.rule, str) or self.rule not in RULES:
            raise PrivacyParameterError(f"rule must be one of {', '.join(RULES)}; got {told(self.rule)}")
        if not isinstance(self.unit, str) or self.unit not in NEIGHBOURS:
            raise PrivacyParameterError(f"unit must be one of {', '.join(NEIGHBOURS)}; got {told(self.unit)}")
        zero_allowed = self.rule == "basic"
        object.__setattr__(self, "delta", check_delta(self.delta, zero_allowed=zero_allowed))

    def cost(self, *spends: PrivacySpend) -> Spent:
        """Add up spends under the rule.

        Raises:
            PrivacyParameterError: the rule cannot account for a spend, or a spend has another unit.
        """
        for spend in spends:
            _require_unit(spend, self.unit)
        if self.rule == "gdp":
            _require_gdp(spends)
        return _added(spends, self.rule)

    def within(self, spent: Spent) -> bool:
        """Return whether the sums are within the budget."""
        if self.rule == "basic":
            most, forgiven = self.epsilon, _ROUNDING
        else:
            most = min(_limit(self.epsilon, self._converted, self.rule), _HUGE)
            forgiven = _CONVERTED
        within_delta = spent.delta <= Fraction(self.delta - self._converted) * _ROUNDING
        return within_delta and spent.strength <= Fraction(most) * forgiven

    def stated(self, spent: Spent) -> Total:
        """State the sums as a pair (epsilon, delta)."""
        return _total(spent, self.rule, self._converted)

    def total(self, spends: Sequence[PrivacySpend]) -> Total:
        """Compose the spends under the rule to a pair (epsilon, delta).

        Raises:
            PrivacyParameterError: the rule cannot account for a spend.
        """
        return self.stated(self.cost(*spends))

    def affords(self, spends: Sequence[PrivacySpend]) -> bool:
        """Return whether the composition of the spends is within the budget."""
        return self.within(self.cost(*spends))

    def shortfall(self, spent: Spent, *more: PrivacySpend) -> str:
        """Explain why ``more`` is not affordable after ``spent``."""
        total, after = self.stated(spent), self.stated(spent + self.cost(*more))
        text = (
            f"spent epsilon = {total.epsilon:.6g} and delta = {total.delta:.3g}, of epsilon = "
            f"{self.epsilon:g} and delta = {self.delta:g} under the rule {self.rule!r}"
            f"; with {'it' if len(more) == 1 else 'them'}, epsilon = {after.epsilon:.6g} and delta = "
            f"{after.delta:.3g}"
        )
        if self.rule != "basic" or after.epsilon > self.epsilon:
            return text
        wanted = "a larger --delta" if self.delta else "--delta"
        return f"{text}. Only delta is short: create the ledger, or another budget in it, with {wanted}"

    @property
    def _converted(self) -> float:
        """Return the part of delta reserved for the conversion of rho or mu to a pair."""
        half = self.delta / 2
        return {"basic": 0.0, "zcdp": half, "gdp": self.delta, "profile": half}[self.rule]


def compose(spends: Sequence[PrivacySpend], delta: float) -> Total:
    """Return the smallest epsilon at ``delta`` under any rule, for releases with parameters fixed in advance.

    If one of the spends has an event, the rule of the result may be "pld": all are then composed by privacy
    loss distributions.

    Neighbours: as for the spends, which all have the same unit.

    Raises:
        PrivacyParameterError: a spend that guarantees nothing, spends of different units, or deltas that add
            up to more than ``delta``.
    """
    delta = check_delta(delta, zero_allowed=True)
    for spend in check_type(spends, Sequence, "expected a list of PrivacySpend"):
        require_guaranteed(spend)
        _require_unit(spend, spends[0].unit)
    if not spends:
        return Total(0.0, 0.0, "basic")
    candidates = [_total(_added(spends, "basic"), "basic", 0.0)]
    left = delta - math.fsum(_own_delta(s) for s in spends)
    if left > 0:
        mixed = any(s.notion == "zcdp" for s in spends)
        candidates += [_total(_added(spends, r), r, left) for r in (("zcdp",) if mixed else ("zcdp", "gdp"))]
    valid = [c for c in candidates if Fraction(c.delta) <= Fraction(delta) * _CONVERTED]
    if delta > 0 and any(s.event is not None for s in spends):
        from privopt.mechanisms.privacy.profiles import profile_epsilon

        most = min((c.epsilon for c in valid), default=4 * math.fsum(s.epsilon for s in spends))
        if (found := profile_epsilon(spends, delta, most)) < most:
            valid.append(Total(found, delta, "pld"))
    if not valid:
        raise PrivacyParameterError(f"the deltas of these releases add up to more than {delta:g}")
    return min(valid, key=lambda c: c.epsilon)


def require_guaranteed(spend: PrivacySpend) -> None:
    """Raise PrivacyParameterError for spends without a guarantee: a refuted claim or reproducible noise."""
    if not isinstance(spend, PrivacySpend):
        raise PrivacyParameterError(f"expected a PrivacySpend, got {told(spend)}")
    if not spend.adds_up:
        raise PrivacyParameterError(
            f"{spend.mechanism} guarantees nothing that could be composed: its claim is {spend.claim!r}"
            + ("" if spend.insecure_seed is None else ", its noise is reproducible")
        )


def _require_unit(spend: PrivacySpend, unit: str) -> None:
    # Privacy for a record does not imply privacy for a person with several. Nor is the converse true:
    # replacing a record by one of another person changes two persons.
    if spend.unit != unit:
        raise PrivacyParameterError(
            f"{spend.mechanism} is private for a {spend.unit} ({spend.neighbours}), and the budget counts by "
            f"{unit}: their privacy does not add up. To do: a budget with unit={spend.unit!r} "
            f"(`privopt budget create --unit {spend.unit}`), or person= in every release"
        )


def _require_gdp(spends: Iterable[PrivacySpend]) -> None:
    # Approximate releases would need a delta reserved in advance: whether a later release spends mu or delta
    # may depend on earlier results, and choosing the better of several accounts afterwards is not a valid
    # composition.
    wrong = sorted({f"{s.mechanism} ({s.notion})" for s in spends if s.notion not in ("gdp", "pure")})
    if wrong:
        raise PrivacyParameterError(
            f"the rule 'gdp' composes GDP and pure releases only, not {', '.join(wrong)}: use a mechanism "
            "that is one Gaussian release, such as dp-gd, or a ledger with another rule"
        )


def _added(spends: Iterable[PrivacySpend], rule: str) -> Spent:
    return sum((_cost(spend, rule) for spend in spends), Spent())


def _cost(spend: PrivacySpend, rule: str) -> Spent:
    if rule == "basic":
        return Spent(Fraction(spend.epsilon), Fraction(spend.delta))
    if rule == "profile":
        mu, disclosed = _gaussian_of(spend)
        return Spent(Fraction(_square(mu, 1)), Fraction(disclosed))
    strength = _rho(spend) if rule == "zcdp" else _squared_mu(spend)
    return Spent(Fraction(strength), Fraction(_own_delta(spend)))


def _total(spent: Spent, rule: str, delta: float) -> Total:
    """Convert the sums to a pair at ``delta``, plus the deltas of approximate releases.

    "basic": epsilons and deltas add up, Dwork et al. (2006).
    "zcdp": rho adds up, and an (epsilon, delta) release counts as delta-approximate epsilon^2/2-zCDP: Bun and
    Steinke (2016), section 8.
    "gdp": mu^2 adds up, Dong, Roth and Su (2022), corollary 3.3. epsilon-DP is GDP (``pure_to_gdp``).
    (epsilon, delta)-DP is a release that discloses everything with probability delta and otherwise is
    epsilon-DP (Kairouz, Oh and Viswanath 2015): its delta is added, as under zCDP.
    "profile": as "gdp", with the probabilities of disclosure added.
    """
    if not spent.strength:
        return Total(0.0, 0.0, rule)
    strength, deltas = _double(spent.strength), _double(Fraction(delta) + spent.delta)
    if rule == "basic" or strength > _VAST:
        return Total(strength, deltas, rule)
    from privopt.mechanisms.privacy.accounting import gaussian_epsilon, zcdp_epsilon

    if rule == "zcdp":
        return Total(zcdp_epsilon(strength, delta), deltas, rule)
    return Total(gaussian_epsilon(math.sqrt(strength), delta), deltas, rule)


@lru_cache(maxsize=64)  # cached: a search takes milliseconds, and bookings share the limit
def _limit(epsilon: float, delta: float, rule: str) -> float:
    from privopt.mechanisms.privacy.accounting import gaussian_mu, zcdp_rho

    return zcdp_rho(epsilon, delta) if rule == "zcdp" else gaussian_mu(epsilon, delta) ** 2


def _double(exact: Fraction) -> float:
    """Round to the nearest double, as ``math.fsum`` does; infinite beyond the range of doubles."""
    try:
        return float(exact)
    except OverflowError:
        return math.inf


def _own_delta(spend: PrivacySpend) -> float:
    """Return the delta of an approximate release, otherwise 0: under zCDP and GDP delta belongs to a
    conversion only.
    """
    return spend.delta if spend.notion == "approximate" else 0.0


def _rho(spend: PrivacySpend) -> float:
    """Return rho: mu^2 / 2 of a GDP release, epsilon^2 / 2 of a pure or approximate one (Bun and Steinke
    2016, proposition 3.3).
    """
    if spend.notion == "zcdp" and spend.level is not None:
        return spend.level
    return _square(spend.epsilon if spend.level is None else spend.level, 2)


def _squared_mu(spend: PrivacySpend) -> float:
    if spend.notion == "zcdp":
        raise PrivacyParameterError("zCDP implies no GDP")
    from privopt.mechanisms.privacy.accounting import pure_to_gdp

    return _square(pure_to_gdp(spend.epsilon) if spend.level is None else spend.level, 1)


def _gaussian_of(spend: PrivacySpend) -> tuple[float, float]:
    """Return mu and c: the release is at least as private as a mu-GDP one that discloses everything with
    probability c.
    """
    from privopt.mechanisms.privacy.accounting import pure_to_gdp

    if spend.notion == "gdp" and spend.level is not None:
        return spend.level, 0.0
    if spend.event is None:
        return pure_to_gdp(spend.epsilon), spend.delta
    from privopt.mechanisms.privacy.profiles import with_gaussian

    event = with_gaussian(spend).event
    assert event is not None
    assert event.mu is not None
    assert event.disclosed is not None
    return event.mu, event.disclosed


def _square(x: float, over: int) -> float:
    """Return x^2 / over, limited to positive doubles for every x > 0."""
    return min(max(x * x / over, _TINY), _HUGE)

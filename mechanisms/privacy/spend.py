"""The privacy spend of a release: a frozen record of its notion, parameters and claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any, Self

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.privacy.events import Event, read_event
from privopt.mechanisms.privacy.parameters import check_delta, check_epsilon, check_positive
from privopt.problems.arguments import told
from privopt.problems.notebooks import html_facts

NOTIONS = ("pure", "approximate", "zcdp", "gdp")
CLAIMS = ("proved", "not checked", "printed: refuted")
# Neighbouring relation by unit of privacy: tables that differ in one record, or in all records of one person.
NEIGHBOURS = {"record": "replace-one", "person": "replace-one person"}


@dataclass(frozen=True)
class PrivacySpend:
    """Privacy of one release; neighbouring tables differ in one record, or in all records of one person.

    The number of records, or of persons (``problems.tables.persons``), is public.

    ``epsilon`` and ``delta`` always hold a valid pair. A release with a proof in zCDP or GDP also keeps rho
    or mu, from which sequences of releases compose more tightly.

    Attributes:
        epsilon: > 0.
        delta: 0 for pure privacy, else in (0, 1).
        notion: "pure", "approximate", "zcdp" or "gdp".
        mechanism: name of the mechanism.
        level: rho of zCDP, mu of GDP, None under the other notions.
        neighbours: "replace-one", or "replace-one person": all records of one person.
        claim: "proved"; "not checked" if it relies on code outside this package that none of our conformance
            checks has tested; or "printed: refuted" for the calibration of a paper that is wrong.
        note: where the claim comes from, and why it fails if it does; required for a claim that is not
            proved.
        insecure_seed: the seed, if the noise was reproducible; the guarantee is void then.
        event: for releases on sampled batches, and for choices among a random number of runs, their
            parameters, by which ``compose`` gives a smaller total. An event is dropped if its epsilon or
            delta differs from the epsilon or delta of the spend, as happens once something is added to the
            spend.

    Raises:
        PrivacyParameterError: any field outside its range.
    """

    epsilon: float
    delta: float
    notion: str
    mechanism: str
    level: float | None = None
    neighbours: str = NEIGHBOURS["record"]
    claim: str = "proved"
    note: str = ""
    insecure_seed: int | None = None
    event: Event | None = None

    def __post_init__(self) -> None:
        _check_choice("notion", self.notion, NOTIONS)
        _check_choice("claim", self.claim, CLAIMS)
        _check_choice("neighbours", self.neighbours, tuple(NEIGHBOURS.values()))
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        object.__setattr__(self, "delta", check_delta(self.delta, zero_allowed=True))
        if (self.delta == 0) != (self.notion == "pure"):
            raise PrivacyParameterError(f"delta = {self.delta:g} does not fit the notion {self.notion!r}")
        if (self.level is not None) != (self.notion in ("zcdp", "gdp")):
            raise PrivacyParameterError("level is the rho of zCDP or the mu of GDP; other notions have none")
        if self.level is not None:
            object.__setattr__(self, "level", check_positive(self.level, "level"))
            self._check_pair(self.level)
        if not (isinstance(self.mechanism, str) and self.mechanism):
            raise PrivacyParameterError(f"mechanism must be a name, got {told(self.mechanism)}")
        if not isinstance(self.note, str) or (self.claim != "proved" and not self.note):
            raise PrivacyParameterError("a claim that is not proved needs a note saying whose it is")
        if self.insecure_seed is not None and type(self.insecure_seed) is not int:
            raise PrivacyParameterError(
                f"insecure_seed must be an integer or None, got {told(self.insecure_seed)}"
            )
        event = self.event
        if event is not None and not (
            isinstance(event, Event)
            and self.notion == "approximate"
            and (event.epsilon, event.delta) == (self.epsilon, self.delta)
        ):
            object.__setattr__(self, "event", None)

    def _check_pair(self, level: float) -> None:
        implied = _implied_epsilon(self.notion, level, self.delta)
        if self.epsilon < implied * (1 - 1e-9) and not self._bounds_delta(level):
            raise PrivacyParameterError(
                f"{self.notion} at level {level:g} and delta = {self.delta:g} implies "
                f"epsilon = {implied:g}, not {self.epsilon:g}"
            )

    def _bounds_delta(self, level: float) -> bool:
        """Return whether the delta that a GDP level has at epsilon is at most the delta of the pair.

        The converse, epsilon computed from delta, fails for a tiny epsilon: its effect on delta is smaller
        than the rounding error of delta.
        """
        from privopt.mechanisms.privacy.accounting import gaussian_delta

        return self.notion == "gdp" and gaussian_delta(level, self.epsilon) <= self.delta * (1 + 1e-9)

    @property
    def unit(self) -> str:
        """The unit of privacy: "record" or "person"."""
        return next(unit for unit, relation in NEIGHBOURS.items() if relation == self.neighbours)

    @property
    def guaranteed(self) -> bool:
        """Whether the claim is proved and the noise was not reproducible."""
        return self.claim == "proved" and self.insecure_seed is None

    @property
    def adds_up(self) -> bool:
        """Whether budgets accept it: the claim is not refuted and the noise was not reproducible."""
        return self.claim != "printed: refuted" and self.insecure_seed is None

    def relying_on(self, what: str, *, checked: bool) -> Self:
        """Add ``what``, external code that the claim relies on, to the note; unless ``checked``, weaken
        the claim.
        """
        claim = "not checked" if self.claim == "proved" and not checked else self.claim
        return replace(self, claim=claim, note="; ".join(filter(None, (self.note, what))))

    @classmethod
    def pure(cls, epsilon: float, mechanism: str, *, note: str = "") -> Self:
        """Return a spend of epsilon-differential privacy."""
        return cls(epsilon, 0.0, "pure", mechanism, note=note)

    @classmethod
    def approximate(
        cls,
        epsilon: float,
        delta: float,
        mechanism: str,
        *,
        note: str = "",
        event: Event | None = None,
    ) -> Self:
        """Return a spend of (epsilon, delta)-differential privacy."""
        return cls(epsilon, delta, "approximate", mechanism, note=note, event=event)

    @classmethod
    def zcdp(cls, rho: float, delta: float, mechanism: str, *, note: str = "") -> Self:
        """Return a spend of rho-zCDP, stated as a pair at ``delta``."""
        return cls._at_level("zcdp", rho, delta, mechanism, note)

    @classmethod
    def gdp(cls, mu: float, delta: float, mechanism: str, *, note: str = "") -> Self:
        """Return a spend of mu-GDP, stated as a pair at ``delta``."""
        return cls._at_level("gdp", mu, delta, mechanism, note)

    @classmethod
    def _at_level(cls, notion: str, level: float, delta: float, mechanism: str, note: str) -> Self:
        # A tiny level may imply epsilon = 0 at this delta; epsilon must be > 0, if only by the least double.
        epsilon = max(_implied_epsilon(notion, level, delta), 5e-324)
        return cls(epsilon, delta, notion, mechanism, level=level, note=note)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary; ``from_dict`` reads it back to an equal spend."""
        found = asdict(self)
        event = found.pop("event")
        return found if event is None or self.event is None else {**found, "event": self.event.to_dict()}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        """Read ``to_dict`` back, checking every field.

        Raises:
            PrivacyParameterError: a missing, unknown or invalid field.
        """
        names = {f.name for f in fields(cls)} - {"event"}
        if not isinstance(record, Mapping) or set(record) - {"event"} != names:
            raise PrivacyParameterError(
                f"a spend has exactly the fields {sorted(names)}, and perhaps an event"
            )
        if "event" not in record:
            return cls(**record)
        spend = cls(**{**record, "event": read_event(record["event"])})
        if spend.event is None:
            raise PrivacyParameterError("the event of the spend has another epsilon or delta, or notion")
        return spend

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        facts = {name: value for name, value in self.to_dict().items() if value not in (None, "")}
        facts |= {name: f"{facts[name]:.6g}" for name in ("epsilon", "delta", "level") if name in facts}
        return html_facts("Privacy spend", facts)

    def __str__(self) -> str:
        suffix = {"zcdp": "zCDP", "gdp": "GDP"}.get(self.notion, "")
        level = "" if self.level is None else f", {self.level:.6g}-{suffix}"
        voided = "" if self.insecure_seed is None else "; void: reproducible noise"
        pair = f"epsilon = {self.epsilon:.6g}, delta = {self.delta:.3g}{level}"
        return f"{self.mechanism}: {pair} ({self.neighbours}; {self.claim}{voided})"


@lru_cache(maxsize=64)  # cached, as every release checks the spend of its plan again
def _implied_epsilon(notion: str, level: float, delta: float) -> float:
    # Imported here, with NumPy: pure and approximate spends need no conversion.
    from privopt.mechanisms.privacy.accounting import gaussian_epsilon, zcdp_epsilon

    return zcdp_epsilon(level, delta) if notion == "zcdp" else gaussian_epsilon(level, delta)


def _check_choice(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise PrivacyParameterError(f"{name} must be one of {', '.join(allowed)}; got {told(value)}")

"""Work and memory of a sum over all trees or rule lists, from public facts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

# Speeds per second and thread, measured on one core of a server: words intersected and counted, and pairs of
# labels weighed.
_WORDS_PER_SECOND, _PAIRS_PER_SECOND = 3.0e9, 6e8
# Truth values read and packed per second.
_PACKED_PER_SECOND = 4e8
# Seconds that a fit of any size takes.
_ALWAYS = 0.08
# Limits on processor time and bytes.
MOST_SECONDS, MOST_MEMORY = 600.0, 4e9


@dataclass(frozen=True)
class BranchingEffort:
    """Work and memory of counting conjunctions and of summing over models.

    Attributes:
        packed: truth values to pack, 1 for each record and predicate.
        words: machine words to intersect.
        pairs: pairs of labels, one for each side of a branch, to weigh; the work for one label alone counts
            as two pairs.
        memory: bytes of the tables of counts and masses.
    """

    packed: float
    words: float
    pairs: float
    memory: float

    @classmethod
    def of(cls, predicates: int, levels: int, rows: int, classes: int) -> Self:
        """Return the effort for these numbers of predicates, levels, rows and classes."""
        sets = [math.comb(predicates, s) for s in range(levels + 1)]
        blocks = [n << s for s, n in enumerate(sets)]
        masses = sum(sum(blocks[: levels - d + 1]) for d in range(1, levels + 1)) + sum(blocks[:levels])
        return cls(
            packed=float(rows * predicates),
            words=float((rows // 64 + classes) * sum(sets)),
            pairs=float(predicates * sum(blocks[:levels]) * classes * (classes + 2)),
            memory=float(8 * (2 * classes + 1) * sum(sets) + 24 * masses + rows * predicates / 4),
        )

    @property
    def refusals(self) -> list[str]:
        """The reasons why this is too much time or memory; empty if it is not."""
        reasons = []
        if self.seconds > MOST_SECONDS:
            reasons.append(f"some {self.seconds:.3g} s of work, more than {MOST_SECONDS:.3g}")
        if self.memory > MOST_MEMORY:
            reasons.append(f"tables of {self.memory:.3g} bytes, more than {MOST_MEMORY:.3g}")
        return reasons

    @property
    def seconds(self) -> float:
        """Approximate processor time, without compilation."""
        read = self.packed / _PACKED_PER_SECOND
        return _ALWAYS + read + self.words / _WORDS_PER_SECOND + self.pairs / _PAIRS_PER_SECOND

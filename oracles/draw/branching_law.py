"""Conditional laws of draws of trees and rule lists: of the predicate at a node, given the rows there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple, Self

import numpy as np

from privopt.oracles.draw.branching_masses import (
    Masses,
    Tables,
    block_starts,
    leaf_and_one_level,
    no_masses,
    one_level_more,
)
from privopt.problems.discrete.branching import BranchingProblem
from privopt.problems.discrete.conjunction_counts import SetNumbers
from privopt.problems.discrete.lattice import FloatArray, IntArray
from privopt.problems.discrete.rule_list import RuleList

# Blocks times predicates that one call of the kernel handles: a tenth of a second at most between two looks
# at the clock.
_CHUNK = 400_000


class Block(NamedTuple):
    """The rows that satisfy a conjunction: its predicates, increasing, and a mask of those that are true."""

    elements: tuple[int, ...] = ()
    mask: int = 0

    def side(self, g: int, true: bool) -> Block | None:
        """Its rows on one side of a predicate; None if the conjunction asks for the other side."""
        if g in self.elements:
            return self if bool((self.mask >> self.elements.index(g)) & 1) == true else None
        place = sum(e < g for e in self.elements)
        low = self.mask & ((1 << place) - 1)
        mask = low | (int(true) << place) | ((self.mask >> place) << (place + 1))
        return Block((*self.elements[:place], g, *self.elements[place:]), mask)


@dataclass(frozen=True, eq=False)
class BranchingLaw:
    """The masses of all models on all blocks at one inverse temperature.

    Attributes:
        problem: whose models.
        numbers: of the sets of its predicates.
        tables: losses on conjunctions, and the inverse temperature.
        levels: the masses of models of no level, of one, ..., of one less than models have.
    """

    problem: BranchingProblem
    numbers: SetNumbers
    tables: Tables
    levels: tuple[Masses, ...]

    @classmethod
    def of(
        cls,
        problem: BranchingProblem,
        losses: IntArray,
        beta: float,
        threads: int,
        asked: Callable[[int], None],
    ) -> Self:
        """Sum over all models.

        Args:
            problem: whose models.
            losses: of each label on the conjunctions of true predicates, shape (sets, K).
            beta: the inverse temperature.
            threads: how many to use.
            asked: called between parts of the work, with the number of blocks that are done.
        """
        numbers, most = SetNumbers(len(problem.table), problem.levels), problem.levels
        weights = problem.table.shares.astype(np.float64)
        tables = Tables(losses, numbers.starts, numbers.binomials, block_starts(numbers), beta, weights)
        levels = tuple(no_masses(int(tables.blocks[most - max(d, 1) + 1])) for d in range(most))
        law = cls(problem, numbers, tables, levels)
        done = 0
        with ThreadPoolExecutor(threads) as pool:
            for d, size in [(level, size) for level in range(1, most) for size in range(most - level + 1)]:
                sets = int(numbers.starts[size + 1] - numbers.starts[size])
                chunk = max(1, min(_CHUNK // (len(problem.table) << size), -(-sets // threads)))
                for start in range(0, sets, chunk * threads):
                    asked(done)
                    firsts = range(start, min(start + chunk * threads, sets), chunk)
                    list(pool.map(partial(law._summed, d, size, chunk), firsts))
                    done += len(firsts) * chunk << size
        return law

    def _summed(self, d: int, size: int, chunk: int, first: int) -> None:
        """Sum over models of d levels on the blocks of some sets."""
        stop = min(first + chunk, int(self.numbers.starts[size + 1] - self.numbers.starts[size]))
        leaf, out = self.levels[0], self.levels[d]
        if d == 1:
            leaf_and_one_level(first, stop, size, self.tables, leaf, out)
        else:
            rest = self.levels[d - 1]
            one_level_more(first, stop, size, self.tables, leaf if self.one_sided else rest, rest, leaf, out)

    @property
    def one_sided(self) -> bool:
        """Whether one side of every branch is a label."""
        return isinstance(self.problem, RuleList)

    def label_scores(self, block: Block) -> FloatArray:
        """Return the logarithms of the weights of all labels, up to a constant; shape (K,)."""
        losses = self._leaf_losses(block)
        scores: FloatArray = -self.tables.beta * (losses - losses.min())
        return scores

    def choices(self, block: Block, level: int) -> Masses:
        """Return the masses of all choices at a node with ``level`` more levels below it.

        One mass for each value of its coordinate that branches, in order; the last is that of all values that
        stop, together, and is missing at a root that has to branch.
        """
        rest_true, rest_false = self._sides(block, level - 1)
        if self.one_sided:
            true, false = self._sides(block, 0)
            pairs = [_times(true, rest_false), _times(false, rest_true)]
            ways = Masses(*(np.stack(columns, axis=1).ravel() for columns in zip(*pairs, strict=True)))
        else:
            ways = _times(rest_true, rest_false)
        of_values = (
            np.arange(len(ways.mean)).reshape(-1, self.problem.ways)[self.problem.table.values].ravel()
        )
        ways = Masses(ways.smallest[of_values], ways.mean[of_values], ways.excess[of_values])
        if self.problem.root_splits and level == self.problem.levels:
            return _scaled(ways, 1.0 / len(ways.mean))
        stop = _leaf(self._leaf_losses(block)[None, :], self.tables.beta)
        branch, stop = _scaled(ways, 0.5 / len(ways.mean)), _scaled(stop, 0.5)
        return Masses(*(np.concatenate(columns) for columns in zip(branch, stop, strict=True)))

    def scores(self, masses: Masses) -> FloatArray:
        """Return logarithms of masses, up to a constant. Nothing is too small to have one."""
        found: FloatArray = np.log(masses.mean) - self.tables.beta * (masses.smallest - masses.smallest.min())
        return found

    def total(self) -> Masses:
        """Return the mass of all models: arrays of one entry."""
        all_of = self.choices(Block(), self.problem.levels)
        smallest = all_of.smallest.min()
        by = all_of.smallest - smallest
        scale = np.exp(-self.tables.beta * by)
        mean = np.sum(all_of.mean * scale)
        excess = np.sum((all_of.excess + by * all_of.mean) * scale)
        return Masses(np.array([smallest]), np.array([mean]), np.array([excess]))

    def _sides(self, block: Block, level: int) -> tuple[Masses, Masses]:
        """Return the masses of models of so many levels on the rows where each predicate is true, false."""
        predicates = range(len(self.problem.table))
        true, false = ([block.side(g, side) for g in predicates] for side in (True, False))
        return self._masses_of(true, level), self._masses_of(false, level)

    def _masses_of(self, blocks: list[Block | None], level: int) -> Masses:
        """Return the masses of models of so many levels on blocks; 1 on what has no rows."""
        masses = Masses(np.zeros(len(blocks), dtype=np.int64), np.ones(len(blocks)), np.zeros(len(blocks)))
        sizes = np.array([-1 if block is None else len(block.elements) for block in blocks])
        for size in set(sizes.tolist()) - {-1}:
            here = np.flatnonzero(sizes == size)
            chosen = [block for block in blocks if block is not None and len(block.elements) == size]
            for into, values in zip(masses, self._of_one_size(chosen, level), strict=True):
                into[here] = values
        return masses

    def _of_one_size(self, blocks: list[Block], level: int) -> Masses:
        if level == 0:
            return _leaf(np.stack([self._leaf_losses(block) for block in blocks]), self.tables.beta)
        elements, size = _sets(blocks), len(blocks[0].elements)
        number = self.numbers.number(elements) - self.numbers.starts[size]
        masks = np.array([block.mask for block in blocks])
        at = self.tables.blocks[size] + (number << size) + masks
        return Masses(*(column[at] for column in self.levels[level]))

    def _leaf_losses(self, block: Block) -> IntArray:
        """Return the cost of each label on a block, by inclusion and exclusion in integers; shape (K,)."""
        true = [e for t, e in enumerate(block.elements) if (block.mask >> t) & 1]
        false = [e for e in block.elements if e not in true]
        total = np.zeros(self.tables.losses.shape[1], dtype=np.int64)
        for k in range(len(false) + 1):
            for some in combinations(false, k):
                members = np.array([sorted((*true, *some))], dtype=np.int64).reshape(1, -1)
                total += (-1) ** k * self.tables.losses[self.numbers.number(members)[0]]
        return total


def _sets(blocks: list[Block]) -> IntArray:
    return np.array([block.elements for block in blocks], dtype=np.int64).reshape(len(blocks), -1)


def _leaf(losses: IntArray, beta: float) -> Masses:
    """Return masses of the choice of a label, from what labels cost; shape (blocks, K)."""
    smallest = losses.min(axis=1)
    above = losses - smallest[:, None]
    weights = np.exp(-beta * above)
    return Masses(smallest, weights.mean(axis=1), (above * weights).mean(axis=1))


def _times(a: Masses, b: Masses) -> Masses:
    return Masses(a.smallest + b.smallest, a.mean * b.mean, a.excess * b.mean + a.mean * b.excess)


def _scaled(masses: Masses, by: float) -> Masses:
    return Masses(masses.smallest, masses.mean * by, masses.excess * by)

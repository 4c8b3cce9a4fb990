"""The law of a random tree or rule list: the law of the choice at each node, given the rows at the node."""

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
    Powers,
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

# Number of blocks times predicates in one call of the kernel, so that limits are checked every tenth of a
# second.
_CHUNK = 400_000


class Block(NamedTuple):
    """The rows that satisfy a conjunction of predicates, increasing, and a mask of the true ones."""

    elements: tuple[int, ...] = ()
    mask: int = 0

    def side(self, g: int, true: bool) -> Block | None:
        """Return the block of the rows on one side of predicate g; None if all rows are on the other side."""
        if g in self.elements:
            return self if bool((self.mask >> self.elements.index(g)) & 1) == true else None
        place = sum(e < g for e in self.elements)
        low = self.mask & ((1 << place) - 1)
        mask = low | (int(true) << place) | ((self.mask >> place) << (place + 1))
        return Block((*self.elements[:place], g, *self.elements[place:]), mask)


@dataclass(frozen=True, eq=False)
class BranchingLaw:
    """The masses (``branching_masses``) of all models on all blocks, at one inverse temperature.

    Attributes:
        problem: the problem whose models are drawn.
        numbers: the numbering of the sets of predicates.
        tables: losses on conjunctions, and the inverse temperature.
        levels: entry 0 has the masses of labels. Entry d, less than the number of levels of the problem, has
            the masses of the models of up to d levels whose root branches.
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
            problem: the problem whose models are drawn.
            losses: the loss of each label on the conjunctions of true predicates, shape (sets, K).
            beta: the inverse temperature.
            threads: the number of threads to use.
            asked: called between parts of the work, with the number of finished blocks.
        """
        numbers, most = SetNumbers(len(problem.table), problem.levels), problem.levels
        weights = problem.table.shares.astype(np.float64)
        powers, blocks = Powers.of(beta, problem.largest_loss), block_starts(numbers)
        tables = Tables(losses, numbers.starts, numbers.binomials, blocks, beta, weights, powers)
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
        """Compute the masses of models of d levels on the blocks of sets ``first`` to ``first + chunk``."""
        stop = min(first + chunk, int(self.numbers.starts[size + 1] - self.numbers.starts[size]))
        leaf, one, rest, out = self.levels[0], self.levels[1], self.levels[d - 1], self.levels[d]
        if d == 1:
            leaf_and_one_level(first, stop, size, self.tables, leaf, out)
        else:
            one_level_more(first, stop, size, self.tables, leaf, one, rest, self.one_sided, out)

    @property
    def one_sided(self) -> bool:
        """Whether one side of every branch is a label, as in rule lists."""
        return isinstance(self.problem, RuleList)

    def label_scores(self, block: Block | None) -> FloatArray:
        """Return the logarithms of the weights of all labels, up to a constant; shape (K,)."""
        return self._score(self._leaf_losses(block))

    def pair_scores(self, first: Block | None, second: Block | None) -> FloatArray:
        """Return the logarithms of the weights of all pairs of different labels, up to a constant.

        Entry (K - 1) a + c is for label a and label (a + 1 + c) modulo K, 0 <= c < K - 1.
        """
        return self._score(_pairs(self._leaf_losses(first), self._leaf_losses(second)))

    def _score(self, losses: IntArray) -> FloatArray:
        scores: FloatArray = -self.tables.beta * (losses - losses.min())
        return scores

    def whole(self) -> Masses:
        """Return the masses of all choices at the root.

        They are the masses of ``branches``. If a model may be a single label, the mass of all labels is last.
        """
        branches = self.branches(Block(), self.problem.levels)
        if self.problem.root_splits:
            return branches
        label = _leaf(self._leaf_losses(Block())[None], self.tables.beta)
        return _joined([_scaled(branches, 0.5), _scaled(label, 0.5)])

    def branches(self, block: Block, level: int) -> Masses:
        """Return the masses of all choices at a node that branches, with at most ``level`` levels from there.

        A choice is the value v of the node's coordinate, and which sides branch. Its number is s V + v, where
        V is the number of values that branch. In a tree, s is 0 if both sides stop, 1 if only the true side
        branches, 2 if only the false side does, and 3 if both do. In a rule list, s is 1 if the list
        continues, else 0.
        """
        beta, values = self.tables.beta, self.problem.table.values
        sides = [[block.side(g, way) for g in range(len(self.problem.table))] for way in (True, False)]
        losses = [np.stack([self._leaf_losses(b) for b in side]) for side in sides]
        choices = [[_leaf(_pairs(*losses), beta)] * self.problem.ways]
        if level > 1:
            true, false = (_leaf(of_labels, beta) for of_labels in losses)
            more_true, more_false = (self._masses_of(side, level - 1) for side in sides)
            on_true, on_false = _times(more_true, false), _times(true, more_false)
            if self.one_sided:
                choices += [[on_false, on_true]]
            else:
                choices += [[on_true], [on_false], [_times(more_true, more_false)]]
        parts = [
            Masses(*(np.stack(columns, axis=1)[values].ravel() for columns in zip(*ways, strict=True)))
            for ways in choices
        ]
        return _scaled(_joined(parts), 1.0 / (len(choices) * len(parts[0].mean)))

    def scores(self, masses: Masses) -> FloatArray:
        """Return logarithms of masses, up to a constant; they are finite for masses of any size."""
        found: FloatArray = np.log(masses.mean) - self.tables.beta * (masses.smallest - masses.smallest.min())
        return found

    def total(self) -> Masses:
        """Return the mass of all models, as arrays of one entry."""
        all_of = self.whole()
        smallest = all_of.smallest.min()
        by = all_of.smallest - smallest
        scale = np.exp(-self.tables.beta * by)
        mean = np.sum(all_of.mean * scale)
        excess = np.sum((all_of.excess + by * all_of.mean) * scale)
        return Masses(np.array([smallest]), np.array([mean]), np.array([excess]))

    def _masses_of(self, blocks: list[Block | None], level: int) -> Masses:
        """Return the masses of models of up to ``level`` levels that branch; the mass is 1 for None."""
        masses = Masses(np.zeros(len(blocks), dtype=np.int64), np.ones(len(blocks)), np.zeros(len(blocks)))
        sizes = np.array([-1 if block is None else len(block.elements) for block in blocks])
        for size in set(sizes.tolist()) - {-1}:
            here = np.flatnonzero(sizes == size)
            chosen = [block for block in blocks if block is not None and len(block.elements) == size]
            for into, values in zip(masses, self._of_one_size(chosen, level), strict=True):
                into[here] = values
        return masses

    def _of_one_size(self, blocks: list[Block], level: int) -> Masses:
        elements, size = _sets(blocks), len(blocks[0].elements)
        number = self.numbers.number(elements) - self.numbers.starts[size]
        masks = np.array([block.mask for block in blocks])
        at = self.tables.blocks[size] + (number << size) + masks
        return Masses(*(column[at] for column in self.levels[level]))

    def _leaf_losses(self, block: Block | None) -> IntArray:
        """Return the loss of each label on a block, by inclusion and exclusion in integers; shape (K,)."""
        total = np.zeros(self.tables.losses.shape[1], dtype=np.int64)
        if block is None:
            return total
        true = [e for t, e in enumerate(block.elements) if (block.mask >> t) & 1]
        false = [e for e in block.elements if e not in true]
        for k in range(len(false) + 1):
            for some in combinations(false, k):
                members = np.array([sorted((*true, *some))], dtype=np.int64).reshape(1, -1)
                total += (-1) ** k * self.tables.losses[self.numbers.number(members)[0]]
        return total


def _sets(blocks: list[Block]) -> IntArray:
    return np.array([block.elements for block in blocks], dtype=np.int64).reshape(len(blocks), -1)


def _pairs(first: IntArray, second: IntArray) -> IntArray:
    """Return the losses of pairs of different labels, from the losses of labels; shape (..., K (K - 1))."""
    classes = first.shape[-1]
    label, away = np.divmod(np.arange(classes * (classes - 1)), classes - 1)
    costs: IntArray = first[..., label] + second[..., (label + 1 + away) % classes]
    return costs


def _leaf(losses: IntArray, beta: float) -> Masses:
    """Return the mass of all labels on each block, from the losses of labels, shape (blocks, K)."""
    smallest = losses.min(axis=1)
    above = losses - smallest[:, None]
    weights = np.exp(-beta * above)
    return Masses(smallest, weights.mean(axis=1), (above * weights).mean(axis=1))


def _times(a: Masses, b: Masses) -> Masses:
    return Masses(a.smallest + b.smallest, a.mean * b.mean, a.excess * b.mean + a.mean * b.excess)


def _joined(parts: list[Masses]) -> Masses:
    return Masses(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _scaled(masses: Masses, by: float) -> Masses:
    return Masses(masses.smallest, masses.mean * by, masses.excess * by)

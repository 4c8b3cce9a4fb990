"""Regions of the cell model and bounds on them, shared by minimisers and samplers.

Once the numeric weights are fixed, the objective is a function of the indicator weights, the *variables*. Let
x_0, x_1, ... be the levels of the variables, numbered from 0. The objective is a sum of tables, the
*factors*, and of costs of single variables:

    L(x) = constant + sum_f E_f[sum of step_fj(x_j) over the members j of f] + sum_j unary_j(x_j).

Each cell is a factor whose steps are the levels, since the errors of a cell depend on a sum of weights. The
norm term N[|w|^2], infinite outside the ball, is a factor whose members are all variables and whose steps are
the squares of the weights. Costs may be shifted between factors and variables without changing L: factor f
becomes E_f + sum_j shift_fj(x_j), and the cost of variable j becomes theta_j = unary_j - sum_f shift_fj.

Suppose that theta = 0, and let w_fj >= 0 be weights whose sum over the factors f of each variable j is the
temperature T. Then, for any shifts, Hoelder's inequality (weighted mini-buckets, Liu and Ihler 2011) bounds
the free energy of the region from below:

    -T log sum_x exp(-L(x) / T) >= constant + sum_f A_f.

Here A_f is the shifted factor after elimination of its members, the last member first, each by a *soft
minimum* -w log sum_v exp(-g(v) / w) with its weight w = w_fj. A soft minimum of weight 0 is the minimum. At
temperature zero all weights are zero and this is the dual bound on min L; then theta need not be 0, and the
sum of min theta_j is added to the bound. So minimisers and samplers use the same bound at two temperatures:
zero, in exact int64 arithmetic, and one, in float64 and with L in units of the temperature. They optimise the
shifts by different methods: minimisers in ``minimize.native.bounds``, samplers in ``draw.mass_bounds``.

Soft minima take little time because a factor depends only on a sum. Let G_e[t] be the factor after
elimination of member e and all later members, if the steps of the members before e sum to t. Then
G_e[t] = softmin over v of G_{e+1}[t + step(v)] + shift_e(v).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numba.extending import register_jitable
from numpy.typing import NDArray

from privopt.oracles.cells import structure
from privopt.oracles.cells.compiling import inner
from privopt.oracles.cells.record import Record
from privopt.oracles.cells.structure import CellLimits, CellStructure, Int32Array, starts
from privopt.oracles.facts import ProblemFacts
from privopt.oracles.task import Task
from privopt.problems.discrete.halfspace import ZeroOneHalfspace
from privopt.problems.discrete.lattice import FloatArray, IntArray, IntegerLattice
from privopt.problems.discrete.objective import Perturbation
from privopt.problems.discrete.problem import DiscreteProblem

# BIG stands for infinity. Costs are below 2**53, so adding them to BIG neither overflows nor gives a value
# below INFEASIBLE.
BIG = 1 << 60
INFEASIBLE = 1 << 59

Costs = NDArray[Any]  # int64 at temperature zero, float64 above
Box = tuple[IntArray, IntArray]  # first and last level of each variable, both of shape (k,)


class Shape(Record):
    """The layout of all regions with the same number of fixed variables: k variables, F factors, M members.

    The norm term is the last factor, after the cells, and its member is the last of each variable. The
    members of a factor are in increasing order of variable. Members of all factors are numbered together: e
    is member e - member_start[f] of its factor f. Each factor has one more table than members, so the table
    before member e has index e + f. Cells with the same free members are merged.
    """

    fixed: int  # variables 0..fixed-1 are fixed, and are members of no factor
    cells: int  # F - 1
    coordinate: IntArray  # (k,) coordinate of w
    low: IntArray  # (k,) smallest weight
    span: IntArray  # (k,) number of levels
    block: IntArray  # (k,) number of the exclusive block
    coupled: bool  # True if the objective or the lattice depends on |w|^2
    squares: IntArray  # (k, B) squared weight of each level; zeros if not ``coupled``
    records: IntArray  # (F,) the cost of errors on all records of each cell; 0 for the norm term
    member_start: IntArray  # (F + 1,)
    member_var: IntArray  # (M,)
    member_factor: IntArray  # (M,)
    steps: IntArray  # (M, B) step of each level: its number; in the norm term, its squared weight
    table_start: IntArray  # (M + F + 1,)
    var_start: IntArray  # (k + 1,)
    var_member: IntArray  # (M,) the members of each variable, the member of the norm term last
    merged_into: IntArray  # (F,) number of the factor after variable ``fixed`` is fixed, too; -1 if constant

    @cached_property
    def first_tables(self) -> IntArray:
        """Start of each factor's table before its first member, shape (F,)."""
        starts: IntArray = self.table_start[self.member_start[:-1] + np.arange(self.cells + 1)]
        return starts

    @cached_property
    def last_tables(self) -> IntArray:
        """Start of each factor's table after its last member, shape (F,)."""
        starts: IntArray = self.table_start[self.member_start[1:] + np.arange(self.cells + 1)]
        return starts


class Region(Record):
    """A set of points, given by numeric weights, fixed variables, and the levels left of the free variables.

    The constant and the last table of each factor include the costs of the fixed variables.
    """

    constant: Costs  # (1,)
    width: IntArray  # (1,) the sum of squares of the free variables must be less than this
    dom_size: IntArray  # (k,) number of levels left
    dom: IntArray  # (k, B) the levels left, increasing
    unary: Costs  # (k, B)
    shift: Costs  # (M, B)
    weight: FloatArray  # (M,) weights of the soft minima; zeros at temperature zero
    theta: Costs  # (k, B)
    tables: Costs  # the tables G, which start at Shape.table_start


class Odds(NamedTuple):
    """Shares of the levels in each soft minimum, and the entropy of these shares."""

    share: FloatArray  # (B, table size)
    entropy: FloatArray  # (table size,)


def make_shape(cells: CellStructure, coupled: bool) -> Shape:
    """Return the layout with no variable fixed.

    Small blocks come first, because fixing their variables merges cells. In a block, variables with more
    records come first.
    """
    lattice = cells.lattice
    frequency = np.zeros(lattice.dimension, dtype=np.int64)
    np.add.at(frequency, cells.cell_members, np.repeat(cells.records, np.diff(cells.cell_start)))
    span = lattice.high - lattice.low + 1
    blocks = sorted(cells.blocks, key=lambda block: math.prod(span[block].tolist()))
    order = np.concatenate([b[np.argsort(-frequency[b], kind="stable")] for b in blocks])
    block = np.repeat(np.arange(len(blocks)), [len(b) for b in blocks])
    unused = frequency[order] == 0  # variables of no cell may belong to any block, and are put into the last
    block[unused] = len(blocks) - 1
    order, block = (a[np.argsort(unused, kind="stable")].astype(np.int64) for a in (order, block))
    place = {j: p for p, j in enumerate(order.tolist())}
    keys = [tuple(sorted(place[j] for j in cells.members(c).tolist())) for c in range(cells.n_cells)]
    low, span = lattice.low[order], span[order]
    level = np.arange(int(span.max()))
    squares = (low[:, None] + level) ** 2 if coupled else np.zeros((len(low), len(level)), dtype=np.int64)
    norms = lattice.max_squared_norm + 1 if coupled else 1
    return _shape(0, (order, low, span, block, coupled, squares), keys, cells.records, norms)


def next_shape(shape: Shape) -> Shape:
    """Return the layout after one more variable is fixed."""
    keys, _ = _left(_keys(shape), shape.fixed)
    records = np.zeros(len(keys), dtype=np.int64)
    kept = shape.merged_into[:-1] >= 0
    np.add.at(records, shape.merged_into[:-1][kept], shape.records[:-1][kept])
    variables = (shape.coordinate, shape.low, shape.span, shape.block, shape.coupled, shape.squares)
    norms = int(shape.table_start[-1] - shape.table_start[-2])
    return _shape(shape.fixed + 1, variables, keys, records, norms)


def _keys(shape: Shape) -> list[tuple[int, ...]]:
    pairs = itertools.pairwise(shape.member_start[:-1].tolist())
    return [tuple(shape.member_var[a:b].tolist()) for a, b in pairs]


def _left(keys: list[tuple[int, ...]], fixed: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the members of the merged cells after one more variable is fixed, and each cell's new number."""
    left = [tuple(j for j in key if j > fixed) for key in keys]
    below = {key: number for number, key in enumerate(dict.fromkeys(key for key in left if key))}
    return list(below), [below.get(key, -1) for key in left]


def _shape(
    fixed: int, variables: tuple[Any, ...], keys: list[tuple[int, ...]], records: IntArray, norms: int
) -> Shape:
    coordinate, low, span, block, coupled, squares = variables
    k, cells = len(span), len(keys)
    below, merged_into = _left(keys, fixed)
    table_sizes: list[int] = []
    for key in keys:
        table_sizes.extend(itertools.accumulate((int(span[j]) - 1 for j in key), initial=1))
    longest = squares[fixed:].max(axis=1, initial=0).tolist()
    table_sizes.extend(min(norms, size) for size in itertools.accumulate(longest, initial=1))
    factors = [*keys, tuple(range(fixed, k))]
    sizes = [len(members) for members in factors]
    member_var = np.array([j for members in factors for j in members], dtype=np.int64)
    member_factor = np.repeat(np.arange(cells + 1), sizes).astype(np.int64)
    return Shape(
        fixed,
        cells,
        coordinate,
        low,
        span,
        block,
        coupled,
        squares,
        np.append(records, 0),
        starts(sizes),
        member_var,
        member_factor,
        np.where((member_factor < cells)[:, None], np.arange(squares.shape[1]), squares[member_var]),
        starts(table_sizes),
        starts(np.bincount(member_var, minlength=k).tolist()),
        np.argsort(member_var, kind="stable").astype(np.int64),
        np.array([*merged_into, len(below)], dtype=np.int64),
    )


def coupled(problem: DiscreteProblem, task: Task) -> bool:
    """Return whether the objective or the lattice depends on |w|^2."""
    return _coupled(problem.lattice, task)


def _coupled(lattice: IntegerLattice, task: Task) -> bool:
    longest = int(np.sum(np.maximum(lattice.low**2, lattice.high**2)))
    return task is Task.NORMALIZED or lattice.max_squared_norm < longest


def why_not(problem: DiscreteProblem, task: Task, limits: CellLimits) -> list[str]:
    """Return every reason why a problem cannot be decomposed into regions; empty if there is none."""
    return structure.why_not(problem, limits) + long_points(problem.lattice, task, limits.squared_norm)


def why_not_planned(facts: ProblemFacts, task: Task, limits: CellLimits) -> list[str]:
    """Return every reason why some problem with these facts cannot be decomposed into regions."""
    return structure.why_not_planned(facts, limits) + long_points(facts.lattice, task, limits.squared_norm)


def long_points(lattice: IntegerLattice, task: Task, most: int) -> list[str]:
    """Return a reason to refuse if |w|^2 may be too large and the objective or the lattice depends on it."""
    longest = lattice.max_squared_norm
    return [f"|w|^2 up to {longest}, more than {most}"] if _coupled(lattice, task) and longest > most else []


@dataclass(frozen=True)
class CellCosts:
    """Costs added to the loss."""

    unary: IntArray  # (k, B) cost of each level of each variable
    radial: IntArray  # cost by |w|^2; a single entry if nothing depends on |w|^2
    numeric: IntArray  # (r,) cost of each numeric weight vector


@dataclass(frozen=True)
class CellModel:
    """A problem decomposed into r regions, one for each numeric weight vector."""

    cells: CellStructure
    weights: IntArray  # (r, m) numeric weight vectors
    squares: IntArray  # (r,) their squared norms; zeros if nothing depends on |w|^2
    tables: Int32Array  # (r, table size) losses
    shape: Shape

    @classmethod
    def make(cls, problem: ZeroOneHalfspace, task: Task) -> CellModel:
        cells, depends = CellStructure.of(problem), coupled(problem, task)
        weights = cells.numeric_weights()
        squares = np.einsum("ij,ij->i", weights, weights) if depends else np.zeros(len(weights), np.int64)
        return cls(cells, weights, squares, cells.all_tables(weights), make_shape(cells, depends))

    def costs(self, perturbation: Perturbation) -> CellCosts:
        """Return the costs of a perturbation, in the form that regions use."""
        shape, cells = self.shape, self.cells
        unary = np.zeros(shape.squares.shape, dtype=np.int64)
        for j, c in enumerate(shape.coordinate.tolist()):
            unary[j, : shape.span[j]] = perturbation.unary[c]
        numeric = np.zeros(len(self.weights), dtype=np.int64)
        for j, c in enumerate(cells.numeric.tolist()):
            numeric += perturbation.unary[c][self.weights[:, j] - cells.lattice.low[c]]
        radial = np.zeros(cells.lattice.max_squared_norm + 1 if shape.coupled else 1, dtype=np.int64)
        return CellCosts(unary, radial if perturbation.radial is None else perturbation.radial, numeric)

    @property
    def all_levels(self) -> Box:
        return np.zeros_like(self.shape.span), self.shape.span - 1

    def start(self, region: Region, number: int, unit: float, costs: CellCosts, box: Box) -> bool:
        """Set up ``region`` for one numeric weight vector, without shifts; return False if it is empty.

        Args:
            unit: the cost of one error, in the units of the region.
            costs: all other costs, in the same units.
            box: the range of levels of each variable.
        """
        shape, (first, last), radial = self.shape, box, costs.radial[self.squares[number] :]
        region.constant[0] = costs.numeric[number]
        region.unary[:] = costs.unary
        region.shift[:] = 0
        region.tables[self._places] = self.tables[number].astype(region.tables.dtype) * unit
        norm = last_table(shape, region, shape.cells)
        region.width[0] = width = min(len(norm), len(radial))
        norm[:width], norm[width:] = radial[:width], BIG
        region.dom_size[:] = last - first + 1
        region.dom[:] = np.minimum(first[:, None] + np.arange(region.dom.shape[1]), last[:, None])
        return restrict_to_ball(shape, region)

    @cached_property
    def _places(self) -> IntArray:
        """The positions of the losses in a region's tables."""
        losses = self.cells.table_start
        return np.repeat(self.shape.last_tables[:-1] - losses[:-1], np.diff(losses)) + np.arange(losses[-1])

    def point(self, number: int, levels: IntArray) -> IntArray:
        """Return the point with the numeric weight vector of this number and these levels."""
        w = np.empty(self.cells.lattice.dimension, dtype=np.int64)
        w[self.cells.numeric] = self.weights[number]
        w[self.shape.coordinate] = self.shape.low + levels
        return w


def new_region(shape: Shape, kind: type[np.number[Any]]) -> Region:
    members, (k, most) = len(shape.member_var), shape.squares.shape
    return Region(
        np.zeros(1, kind),
        np.zeros(1, np.int64),
        np.zeros(k, np.int64),
        np.zeros((k, most), np.int64),
        np.zeros((k, most), kind),
        np.zeros((members, most), kind),
        np.zeros(members),
        np.zeros((k, most), kind),
        np.zeros(int(shape.table_start[-1]), kind),
    )


@register_jitable
def last_table(shape: Shape, region: Region, f: int) -> Costs:
    """Return the last table of a factor, indexed by the sum of the steps of all members."""
    at = shape.member_start[f + 1] + f
    return region.tables[shape.table_start[at] : shape.table_start[at + 1]]


def restrict_to_ball(shape: Shape, region: Region) -> bool:
    """Drop the levels that no point of the norm ball has; return False if no point is left."""
    size, dom = region.dom_size[shape.fixed :], region.dom[shape.fixed :]
    if np.any(size <= 0):
        return False
    left, row = np.arange(dom.shape[1]) < size[:, None], np.arange(len(dom))[:, None]
    squares = np.where(left, shape.squares[shape.fixed + row, dom], BIG)
    least = squares.min(axis=1)
    total = least.sum()
    if total >= region.width[0]:
        return False
    kept = squares < (region.width[0] - total + least)[:, None]
    if not np.array_equal(kept, left):
        dom[:] = dom[row, np.argsort(~kept, axis=1, kind="stable")]
        size[:] = kept.sum(axis=1)
    return True


def start_dual(shape: Shape, region: Region, tilt: Any) -> None:
    """Set theta to tilt * |w|^2, and shift the rest of the unary costs to the norm term."""
    region.theta[shape.fixed :] = tilt * shape.squares[shape.fixed :]
    region.shift[:] = 0
    norm = region.shift[shape.member_start[shape.cells] :]
    norm[:] = region.unary[shape.fixed :] - region.theta[shape.fixed :]
    update(shape, region, None)


@njit(cache=True, nogil=True)
def give_to_norm(shape: Shape, region: Region, tilt: Any) -> None:
    """Set theta to tilt * |w|^2, and shift the rest to the norm term; shifts of cells do not change."""
    for j in range(shape.fixed, len(shape.span)):
        last = shape.var_start[j + 1] - 1
        for v in region.dom[j, : region.dom_size[j]]:
            region.theta[j, v] = tilt * shape.squares[j, v]
            rest = region.unary[j, v] - region.theta[j, v]
            for b in range(shape.var_start[j], last):
                rest -= region.shift[shape.var_member[b], v]
            region.shift[shape.var_member[last], v] = rest


@njit(cache=True, nogil=True)
def update(shape: Shape, region: Region, odds: Odds | None) -> None:
    """Recompute the tables from shifts and weights, and fill ``odds``, which is None at temperature zero."""
    for e in range(len(shape.member_var) - 1, -1, -1):
        pull(shape, region, odds, e)


@inner
def pull(shape: Shape, region: Region, odds: Odds | None, e: int) -> None:
    """Compute the table before a member from the table after it."""
    j, at = shape.member_var[e], e + shape.member_factor[e]
    start, middle, end = shape.table_start[at], shape.table_start[at + 1], shape.table_start[at + 2]
    out, after = region.tables[start:middle], region.tables[middle:end]
    levels, size, steps, shift = region.dom[j], region.dom_size[j], shape.steps[e], region.shift[e]
    minimum(out, after, levels, size, steps, shift)
    if odds is not None:  # resolved at compile time
        share, entropy = odds.share[:, start:middle], odds.entropy[start:middle]
        _soften(out, after, levels, size, steps, shift, region.weight[e], share, entropy)


@njit(inline="always")
def assign(target: Costs, source: Costs) -> None:
    """Copy a vector, without NumPy's check of shapes, which takes half a second to compile."""
    for t in range(len(source)):
        target[t] = source[t]


@inner
def assign_rows(target: Costs, source: Costs) -> None:
    """Copy a matrix, as ``assign`` copies a vector."""
    for j in range(source.shape[0]):
        for v in range(source.shape[1]):
            target[j, v] = source[j, v]


@njit(inline="always")
def minimum(out: Costs, after: Costs, levels: IntArray, size: int, steps: IntArray, costs: Costs) -> None:
    """Set out[t] to the minimum over the levels v of after[t + steps[v]] + costs[v]."""
    out[:] = BIG
    for i in range(size):
        v = levels[i]
        cost, source = costs[v], after[steps[v] :]
        for t in range(min(len(out), len(source))):
            out[t] = min(out[t], source[t] + cost)


@njit(cache=True, nogil=True)
def knapsack(
    shape: Shape, region: Region, variables: IntArray, costs: IntArray, norm: IntArray, x: IntArray
) -> Any:
    """Minimise the sum of costs[j, v] over the given variables j plus norm[sum of squares].

    The minimiser is written to ``x``; of several minimisers, the lexicographically first in the order of
    ``variables``.
    """
    tables = np.empty((len(variables) + 1, len(norm)), dtype=np.int64)
    assign(tables[len(variables)], norm)
    for i in range(len(variables) - 1, -1, -1):
        j = variables[i]
        minimum(tables[i], tables[i + 1], region.dom[j], region.dom_size[j], shape.squares[j], costs[j])
    t = 0
    for i in range(len(variables)):
        j = variables[i]
        for at in range(region.dom_size[j]):
            v = region.dom[j, at]
            further = t + shape.squares[j, v]
            if further < len(norm) and tables[i + 1, further] + costs[j, v] == tables[i, t]:
                x[j], t = v, further
                break
    return tables[0, 0]


@njit(inline="always")
def _soften(
    out: Costs,
    after: Costs,
    levels: IntArray,
    size: int,
    steps: IntArray,
    costs: Costs,
    weight: float,
    share: FloatArray,
    entropy: FloatArray,
) -> None:
    """Replace the minimum in ``out`` by the soft minimum; write the shares of levels and their entropy."""
    inverse = 1.0 / weight
    for t in range(len(out)):
        total, mean, entropy[t] = 0.0, 0.0, 0.0
        if out[t] >= INFEASIBLE:
            share[:, t] = 0.0
            continue
        for i in range(size):
            v = levels[i]
            energy = after[t + steps[v]] + costs[v] if t + steps[v] < len(after) else BIG
            exponent = (out[t] - energy) * inverse
            share[v, t] = math.exp(exponent)
            total += share[v, t]
            if share[v, t] > 0.0:
                mean += share[v, t] * exponent
        log_total = math.log(total)
        out[t] -= weight * log_total
        entropy[t] = log_total - mean / total
        for i in range(size):
            share[levels[i], t] /= total


@njit(cache=True, nogil=True, inline="always")
def bound(shape: Shape, region: Region) -> Any:
    """Return a lower bound on the free energy of the region, or on its minimum; tables must be up to date."""
    total = region.constant[0]
    for f in range(shape.cells + 1):
        total += region.tables[shape.table_start[shape.member_start[f] + f]]
    for j in range(shape.fixed, len(shape.span)):
        total += least_theta(region, j)
    return total


@njit(inline="always")
def least_theta(region: Region, j: int) -> Any:
    theta = region.theta[j]
    least = theta[region.dom[j, 0]]
    for i in range(1, region.dom_size[j]):
        least = min(least, theta[region.dom[j, i]])
    return least


def fix(shape: Shape, below: Shape, region: Region, child: Region, level: int) -> None:
    """Set ``child`` to the part of a region with variable ``shape.fixed`` at a level; it must not be empty.

    The shifts of merged cells are added, and so are their weights; so the bound does not decrease.
    """
    _fix(shape, below, region, child, level)
    restrict_to_ball(below, child)


@njit(cache=True, nogil=True)
def _fix(shape: Shape, below: Shape, region: Region, child: Region, level: int) -> None:
    j = shape.fixed
    child.constant[0] = region.constant[0] + region.unary[j, level]
    assign(child.dom_size, region.dom_size)
    assign_rows(child.dom, region.dom)
    assign_rows(child.unary, region.unary)
    child.shift[:] = 0
    child.weight[:] = 0
    child.tables[:] = 0
    for f in range(shape.cells + 1):
        first, end = shape.member_start[f], shape.member_start[f + 1]
        source, into = last_table(shape, region, f), shape.merged_into[f]
        if first < end and shape.member_var[first] == j:
            source = source[shape.steps[first, level] :]
            first += 1
        if into < 0:
            child.constant[0] += source[0]
            continue
        for i in range(end - first):
            e = below.member_start[into] + i
            child.weight[e] += region.weight[first + i]
            for v in range(region.shift.shape[1]):  # an operation on rows would take a second to compile
                child.shift[e, v] += region.shift[first + i, v]
        target = last_table(below, child, into)
        for t in range(len(target)):
            target[t] += source[t] if t < len(source) else BIG
    norm = len(last_table(below, child, below.cells))
    child.width[0] = min(norm, region.width[0] - shape.squares[j, level])

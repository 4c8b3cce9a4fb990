"""Numerical check of a loss and of its declared constants, for built-in and custom losses."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privopt.problems.convex.losses import Labels, Loss, RealArray
from privopt.problems.errors import PrivOptError

_TOLERANCE = 1e-6  # relative error allowed in declared constants and in derivatives
_STEP = 1e-4

Grid = NDArray[np.float64]


class LossCheckError(PrivOptError):
    """A loss violates its declared constants or derivatives. The message lists every violation."""


def check_loss(loss: Loss, *, reach: float = 60.0) -> None:
    """Check value, slope and curvature against one another and against the declared constants.

    Evaluates the loss on a fine grid of predictions, refined where its slope and curvature are largest, for
    the extreme labels and some between. Passing is evidence, not a proof; a constant that is too small by
    more than a millionth somewhere on the grid fails. So does a loss whose values depend on the order or
    number of the predictions beside them, or on earlier calls: one record could then move all gradients.

    Args:
        loss: the loss to check.
        reach: the grid spans |z| <= reach, and beyond it a coarse one up to 1e4 * reach.

    Raises:
        LossCheckError: listing every contradiction.
    """
    grid = _grid(reach)
    problems = _dependences(loss, reach)
    for label in _labels(loss.labels, reach):
        problems += [f"{text} (label {label:g})" for text in _contradictions(loss, grid, label)]
    if problems:
        raise LossCheckError(f"{type(loss).__name__}: " + "; ".join(problems))


def _dependences(loss: Loss, reach: float) -> list[str]:
    """Return methods whose results depend on more than the prediction and label of each record."""
    rng, labels = np.random.default_rng(0), _labels(loss.labels, reach)
    z, y = rng.uniform(-reach, reach, 64), np.array(labels)[rng.integers(0, len(labels), 64)]
    subsets = [rng.permutation(64), np.arange(32), np.arange(0, 64, 3), np.arange(64)]
    problems = []
    for method in (loss.value, loss.slope, loss.curvature):
        alone = np.array([float(method(z[[i]], y[[i]])[0]) for i in range(64)])
        found = [(method(z[some], y[some]), alone[some]) for some in subsets]
        if not all(a.shape == b.shape and np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in found):
            problems.append(
                f"{method.__name__} depends on other predictions than its own, or on earlier calls"
            )
    return problems


def _contradictions(loss: Loss, grid: Grid, label: float) -> list[str]:
    y = np.full_like(grid, label)
    value, slope, curvature = loss.value(grid, y), loss.slope(grid, y), loss.curvature(grid, y)
    if not all(a.shape == grid.shape and np.all(np.isfinite(a)) for a in (value, slope, curvature)):
        return ["value, slope or curvature is not finite or has the wrong shape"]
    return [*_wrong_derivatives(loss, grid, y), *_exceeded_bounds(loss, grid, y)]


def _wrong_derivatives(loss: Loss, grid: Grid, y: Grid) -> list[str]:
    """Compare slope and curvature with differences of the value and the slope."""
    value, slope, curvature = loss.value(grid, y), loss.slope(grid, y), loss.curvature(grid, y)
    problems = []
    # A central difference of a function whose derivative is M-Lipschitz is off by at most M h / 2.
    rise = (loss.value(grid + _STEP, y) - loss.value(grid - _STEP, y)) / (2 * _STEP)
    slack = loss.smoothness * _STEP + 1e-11 * (1 + np.abs(value)) / _STEP
    if np.any(np.abs(rise - slope) > slack + _TOLERANCE * (1 + np.abs(slope))):
        problems.append("slope is not the derivative of value")
    left, right = ((loss.slope(grid + s, y) - slope) / s for s in (-_STEP, _STEP))
    bend = np.maximum(np.abs(left - curvature), np.abs(right - curvature))
    # Curvature may jump (Huber), so a difference across the jump proves nothing.
    smooth = np.abs(left - right) < 1e-3
    if np.any(bend[smooth] > 5e-3 * (1 + np.abs(curvature[smooth]))):
        problems.append("curvature is not the derivative of slope")
    return problems


def _exceeded_bounds(loss: Loss, grid: Grid, y: Grid) -> list[str]:
    """Compare the declared range, constants and convexity with the values on the grid."""
    value, slope, curvature = loss.value(grid, y), loss.slope(grid, y), loss.curvature(grid, y)
    label, problems = float(y[0]), []
    outside = np.any(value < -_TOLERANCE) or np.any(value > loss.value_range * (1 + _TOLERANCE))
    if np.isfinite(loss.value_range) and outside:
        problems.append(
            f"value_range is declared {loss.value_range:.8g}, but values reach from {np.min(value):.8g} to "
            f"{np.max(value):.8g}"
        )
    steepest = _maximum(lambda z: np.abs(loss.slope(z, np.full_like(z, label))), grid)
    if steepest > loss.lipschitz * (1 + _TOLERANCE):
        problems.append(f"lipschitz is declared {loss.lipschitz:.8g}, but |slope| reaches {steepest:.8g}")
    sharpest = max(
        _maximum(lambda z: np.abs(loss.curvature(z, np.full_like(z, label))), grid),
        float(np.max(np.abs(np.diff(slope) / np.diff(grid)))),
    )
    if sharpest > loss.smoothness * (1 + _TOLERANCE):
        problems.append(
            f"smoothness is declared {loss.smoothness:.8g}, but the slope changes at {sharpest:.8g}"
        )
    bends = float(np.max(np.abs(np.diff(curvature) / np.diff(grid))))
    if bends > loss.curvature_lipschitz * (1 + _TOLERANCE) + 1e-9:
        problems.append(
            f"curvature_lipschitz is declared {loss.curvature_lipschitz:.8g}, but the curvature changes at "
            f"{bends:.8g}"
        )
    if loss.convex and np.any(np.diff(slope) < -1e-12 * (1 + np.abs(slope[1:]))):
        problems.append("it is declared convex, but its slope decreases")
    return problems


def _maximum(f: Callable[[RealArray], RealArray], grid: Grid) -> float:
    """Return the largest value of f on the grid and on finer grids around the best point."""
    for _ in range(3):
        values = f(grid)
        best = int(np.argmax(values))
        grid = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 201)
    return float(max(np.max(values), np.max(f(grid))))


def _grid(reach: float) -> Grid:
    far = np.geomspace(reach, 1e4 * reach, 50)[1:]
    return np.concatenate([-far[::-1], np.linspace(-reach, reach, 24_001), far])


def _labels(kind: Labels, reach: float) -> list[float]:
    return {
        Labels.SIGN: [-1.0, 1.0],
        Labels.UNIT: [0.0, 0.25, 0.5, 1.0],
        Labels.REAL: [0.0, -0.3 * reach, 0.7, 0.5 * reach],
    }[kind]

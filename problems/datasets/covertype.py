"""The Covertype data set of the UCI Machine Learning Repository, shipped with the package.

Blackard, Dean and Anderson (1998), DOI 10.24432/C50K5N; copyright Jock A. Blackard and Colorado State
University, reuse unlimited with that notice retained; see data/LICENSE-covertype.txt. The records are public,
so nothing here needs a privacy budget; they stand in for private ones in examples and experiments.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from privopt.problems.convex.sets.box import Box

COVERTYPE_CLASSES = (
    "Spruce/Fir",
    "Lodgepole Pine",
    "Ponderosa Pine",
    "Cottonwood/Willow",
    "Aspen",
    "Douglas-fir",
    "Krummholz",
)  # labelled 1 to 7

# Public bounds by unit and region, not inferred from the records: elevations of the Colorado Front Range in
# metres, angles in degrees, distances across a study area of 10 km in metres, hillshade indices in one
# byte. Values outside are clipped.
_QUANTITATIVE = {
    "Elevation": (1500, 4500),
    "Aspect": (0, 360),
    "Slope": (0, 90),
    "Horizontal_Distance_To_Hydrology": (0, 2000),
    "Vertical_Distance_To_Hydrology": (-1000, 1000),
    "Horizontal_Distance_To_Roadways": (0, 10_000),
    "Hillshade_9am": (0, 255),
    "Hillshade_Noon": (0, 255),
    "Hillshade_3pm": (0, 255),
    "Horizontal_Distance_To_Fire_Points": (0, 10_000),
}
_WILDERNESS, _SOIL = 4, 40

COVERTYPE_COLUMNS = (
    *_QUANTITATIVE,
    *(f"Wilderness_Area_{k}" for k in range(_WILDERNESS)),
    *(f"Soil_Type_{k}" for k in range(_SOIL)),
)


def load_covertype(dtype: DTypeLike = np.float64) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Load all 581,012 records in file order: features (n, 54) as distributed, and classes 1 to 7, (n,).

    The columns are ``COVERTYPE_COLUMNS``: 10 quantities, then one-hot wilderness area and soil type. As
    float64 they take 251 MB. The split that UCI recommends: training [:11340], validation [11340:15120],
    test [15120:].
    """
    with (
        (files("privopt.problems.datasets") / "data" / "covertype.npz").open("rb") as raw,
        np.load(raw, allow_pickle=False) as stored,
    ):
        quantities, y = stored["X_quant"], stored["y"]
        wilderness, soil = stored["wilderness"], stored["soil"]
    X = np.zeros((len(y), len(COVERTYPE_COLUMNS)), dtype=dtype)
    rows = np.arange(len(y))
    X[:, : len(_QUANTITATIVE)] = quantities
    X[rows, len(_QUANTITATIVE) + wilderness] = 1
    X[rows, len(_QUANTITATIVE) + _WILDERNESS + soil] = 1
    return X, y.astype(np.int64)


def covertype_bounds() -> Box:
    """Return public bounds of the 54 columns, for scaling and clipping."""
    bounds = [*_QUANTITATIVE.values(), *[(0, 1)] * (_WILDERNESS + _SOIL)]
    return Box([low for low, _ in bounds], [high for _, high in bounds])


def covertype_binary(dtype: DTypeLike = np.float64) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the binary task: Lodgepole Pine (class 2, 48.8% of the records) as +1 against the rest as -1.

    Papers that use Covertype as a binary task do not say which class is +1; this is the usual choice. Every
    column is clipped to its public bounds and scaled to [0, 1], so rows have l2 norm at most sqrt(12).
    """
    X, y = load_covertype(dtype)
    bounds = covertype_bounds()
    low, span = bounds.low.astype(X.dtype), (bounds.high - bounds.low).astype(X.dtype)
    X -= low
    X /= span
    np.clip(X, 0, 1, out=X)
    return X, np.where(y == 2, 1, -1).astype(np.int64)

"""Released best subsets of 1, 2, ... columns, as part of a larger release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SupportPath:
    """Supports of the best models on 1, 2, ..., k columns, computed from a release.

    Attributes:
        masks: the features of each support, shape (k, p).
        finished: for each size, whether the search was finished; if not, the support is the best one found.
    """

    masks: NDArray[np.bool_]
    finished: tuple[bool, ...]

"""
Forest cover: seven classes
===========================

**Question.** Which kind of trees grows on a patch of 30 by 30 metres?

**Data.** Covertype, four wilderness areas in Colorado (Blackard, Dean and Anderson 1998, UCI; copyright Jock
A. Blackard and Colorado State University). One record in ten is used here.
"""

import numpy as np
import pandas as pd

from privopt.mechanisms import PrivateTreeClassifier, evaluate
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.covertype import (
    COVERTYPE_CLASSES,
    COVERTYPE_COLUMNS,
    load_covertype,
)

X, y = load_covertype(np.float32)
areas = ["Rawah", "Neota", "Comanche Peak", "Cache la Poudre"]
patches = pd.DataFrame(
    {
        "elevation": X[::10, COVERTYPE_COLUMNS.index("Elevation")],
        "water": X[
            ::10, COVERTYPE_COLUMNS.index("Horizontal_Distance_To_Hydrology")
        ],
        "area": np.array(areas)[X[::10, 10:14].argmax(axis=1)],
    }
)
cover = np.array(COVERTYPE_CLASSES)[y[::10] - 1]
known = np.arange(len(patches)) % 2 == 0

# %%
# **Schema.** Metres above the sea and to the next water, and the names of the areas.

schema = Schema(
    [
        Numeric("elevation", 1500, 4500),
        Numeric("water", 0, 2000),
        Categorical("area", areas),
    ]
)

# %%
# **Fit.** A tree takes any number of classes.

tree = PrivateTreeClassifier(epsilon=0.5, schema=schema, classes=COVERTYPE_CLASSES)
tree.fit(patches[known], cover[known])
tree.card_

# %%
# **Result.** Evaluating the tree on other patches is a separate release.

evaluate(tree, patches[~known], cover[~known], epsilon=0.5)

# %%
# **Cost.**

tree.spend_

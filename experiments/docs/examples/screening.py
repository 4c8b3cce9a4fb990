"""
Screening: choosing settings, and paying for the choice
=======================================================

**Question.** Is a lump malignant? Three candidates for the depth of a tree are compared, and the comparison
is private, too.

**Data.** 569 biopsies (Wolberg, Mangasarian, Street and Street 1993, UCI), in scikit-learn.
"""

from sklearn.datasets import load_breast_cancer

from privopt.mechanisms import PrivateSearchCV, PrivateTreeClassifier
from privopt.problems import Numeric, Schema

table = load_breast_cancer(as_frame=True)
biopsies = table.data[["worst concave points", "worst area", "mean texture"]]
found = table.target.map({0: "malignant", 1: "benign"})

# %%
# **Schema.** Bounds of what an image of a cell can give.

schema = Schema(
    [
        Numeric("worst concave points", 0, 0.3, step=0.01),
        Numeric("worst area", 100, 3000, step=10),
        Numeric("mean texture", 5, 40),
    ]
)

# %%
# **Search.** One epsilon covers the fits and the choice among them. It has to be large here: the records are
# few.

search = PrivateSearchCV(
    PrivateTreeClassifier(schema=schema, classes=("benign", "malignant")),
    {"max_depth": [1, 2, 3]},
    epsilon=6.0,
)
search.fit(biopsies, found)
print(search.best_params_)
search.best_estimator_.card_

# %%
# **Result.** Computed on public records:

print(f"accuracy {(search.predict(biopsies) == found).mean():.3f}")

# %%
# **Cost.**

search.spend_

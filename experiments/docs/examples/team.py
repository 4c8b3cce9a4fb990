"""
A team: two analysts and one budget
===================================

**Question.** Two people work on one table. How do they keep the promise that was made to the people in it?

**Data.** Adult (Becker and Kohavi 1996, UCI).
"""

import os
import tempfile

from privopt.mechanisms import PrivateTreeClassifier, evaluate
from privopt.mechanisms.errors import BudgetExceededError
from privopt.mechanisms.privacy.ledger import Ledger
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, load_adult

people = load_adult("train")

# %%
# **Schema.** Three columns, with the bounds and categories of the codebook.

schema = Schema(
    [
        Numeric("age", 17, 90),
        Numeric("education-num", 1, 16),
        Categorical("sex", ["Female", "Male"]),
    ]
)

# %%
# **Budget.** Epsilon 2 for the table. Every release is booked before a record is read.

place = os.path.join(tempfile.mkdtemp(), "census.db")
Ledger.create(place, epsilon=2.0, delta=1e-9)

# %%
# **Fit.** Ana fits a tree.

tree = PrivateTreeClassifier(
    epsilon=1.0, schema=schema, classes=("<=50K", ">50K"), ledger=place
)
tree.fit(people, people[ADULT_TARGET])
tree.card_

# %%
# **Result.** Ben evaluates the tree on the same people. The evaluation is a separate release.

print(evaluate(tree, people, people[ADULT_TARGET], epsilon=0.8, ledger=place))

# %%
# **Cost.** A third release does not fit, and is refused.

try:
    tree.fit(people, people[ADULT_TARGET])
except BudgetExceededError as error:
    print(error)
Ledger(place)

"""
Credit: a decision tree where errors differ in cost
===================================================

**Question.** Which of 1,000 loans will be repaid? A bad loan that is granted costs five times as much as a
good one that is refused: this cost matrix comes with the data.

**Data.** German Credit (Hofmann 1994, UCI). Sex and nationality are left out on purpose.
"""

from privopt.mechanisms import PrivateTreeClassifier
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.uci import load_credit

loans = load_credit()
known, later = loans[:700], loans[700:]

# %%
# **Schema.** From the form: amounts up to 20,000 Deutsche Mark, durations up to six years. More are clipped.

schema = Schema(
    [
        Categorical("status", ["no account", "below 0", "0 to 200", "200 or more"]),
        Numeric("duration", 0, 72),
        Numeric("amount", 0, 20_000),
        Categorical(
            "savings",
            ["unknown", "below 100", "100 to 500", "500 to 1000", "1000 or more"],
        ),
        Numeric("age", 18, 80),
        Categorical("plans", ["none", "bank", "stores"]),
    ]
)

# %%
# **Fit.** 700 records are few, so epsilon is 3. The tree is drawn by the exponential mechanism from all trees
# with at most three questions on a path: pure differential privacy, no delta.

tree = PrivateTreeClassifier(
    epsilon=3.0,
    schema=schema,
    classes=("no", "yes"),
    class_weight={"no": 5, "yes": 1},
)
tree.fit(known, known["repaid"])
tree.card_

# %%
# **Result.** The mean cost of a decision, beside the best rule that looks at nothing: refuse everybody (.7,
# as 30% do not repay). These records are public; with private ones this figure would have to be paid for, as
# by ``evaluate``.

guess, repaid = tree.predict(later), later["repaid"].to_numpy()
cost = (
    5 * ((guess == "yes") & (repaid == "no")).mean()
    + ((guess == "no") & (repaid == "yes")).mean()
)
print(
    f"cost of a decision: {cost:.2f}; refuse everybody: {(repaid == 'yes').mean():.2f}"
)

# %%
# **Cost.**

tree.spend_

"""
Churn: who does not come back
=============================

**Question.** Which customers of a shop will not buy again? The answer should be a card that the staff can read.

**Data.** 23,570 customers of a shop for music, CDNOW, who first bought in early 1997 (Fader and Hardie 2001). Their
purchases until September describe them; 70% *left*: they bought nothing in the nine months from October.
"""

from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateHalfspaceClassifier
from privopt.problems import Binned, Schema
from privopt.problems.datasets.customers import load_customers

customers = load_customers().sample(frac=1, random_state=0)
known, later = customers[:16_000], customers[16_000:]

# %%
# **Schema.** Bands that the shop chose before it looked: days with a purchase, days since the last one, dollars.

schema = Schema(
    [
        Binned("visits", edges=[1, 2, 3, 4, 6, 10, 100]),
        Binned("last", edges=[0, 30, 60, 90, 120, 180, 240, 274]),
        Binned("dollars", edges=[0, 20, 40, 80, 160, 10_000]),
    ]
)

# %%
# **Fit.** A point is integer, and the higher the sum, the likelier a customer has left.

card = PrivateHalfspaceClassifier(epsilon=0.5, schema=schema, classes=("no", "yes"))
card.fit(known, known["left"])
card.scorecard_

# %%
# **Result.** Gradient boosting without privacy, on the numbers themselves, reaches an area under the curve of .77.
# The tenth of customers with the lowest sums is the one to keep, and few of it leave.

scores, left = card.decision_function(later), (later["left"] == "yes").to_numpy()
loyal = scores.argsort()[: len(later) // 10]
print(f"area under the curve: {roc_auc_score(left, scores):.3f}")
print(
    f"left: {left.mean():.0%} of all, {left[loyal].mean():.0%} of the tenth with the lowest sums"
)

# %%
# **Cost.**

card.spend_

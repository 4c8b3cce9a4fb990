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
# **Schema.** Bands as a shop would choose them without looking at customers: days with a purchase, days since the
# last one, dollars.

schema = Schema(
    [
        Binned("visits", edges=[1, 2, 3, 4, 6, 10, 100]),
        Binned("last", edges=[0, 30, 60, 90, 120, 180, 240, 274]),
        Binned("dollars", edges=[0, 20, 40, 80, 160, 10_000]),
    ],
    intercept=True,
)

# %%
# **Fit.** The higher the sum of points, the likelier a customer has left. Points that noise put out of order would
# not be believed, so the order is declared: it costs nothing.

card = PrivateHalfspaceClassifier(
    epsilon=0.5,
    schema=schema,
    classes=("no", "yes"),
    constraints=["monotone(visits) = falling", "monotone(last) = rising"],
)
card.fit(known, known["left"])
card.scorecard_

# %%
# **Result.** Gradient boosting without privacy, on the numbers themselves, reaches an area under the curve of .77.
# The tenth of customers with the lowest sums is the one to look after; few in this tenth leave.

scores, left = card.decision_function(later), (later["left"] == "yes").to_numpy()
loyal = scores.argsort()[: len(later) // 10]
print(f"area under the curve: {roc_auc_score(left, scores):.3f}")
print(f"left, of all customers: {left.mean():.0%}")
print(f"left, of the tenth with the lowest sums: {left[loyal].mean():.0%}")

# %%
# **Cost.**

card.spend_

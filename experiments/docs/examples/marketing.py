"""
Marketing: whom to call first
=============================

**Question.** 12% of the customers who are called by a bank make a deposit. Order them, so that those who are
likely to are called first.

**Data.** 45,211 calls of a Portuguese bank (Moro, Rita and Cortez 2014, UCI). The length of the call is left
out: nobody knows it beforehand.
"""

from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateAdditiveTreeClassifier
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.uci import load_marketing

calls = load_marketing().sample(frac=1, random_state=0)
known, later = calls[:30_000], calls[30_000:]

# %%
# **Schema.** From the bank's own codebook.

months = "jan feb mar apr may jun jul aug sep oct nov dec".split()
schema = Schema(
    [
        Numeric("age", 18, 90),
        Numeric("balance", -2_000, 20_000),
        Categorical("housing", ["no", "yes"]),
        Categorical("loan", ["no", "yes"]),
        Categorical("contact", ["unknown", "telephone", "cellular"]),
        Categorical("month", months),
        Numeric("campaign", 1, 20),
        Categorical("poutcome", ["unknown", "failure", "other", "success"]),
    ]
)

# %%
# **Fit.** A tree and a scorecard whose points are added: half of epsilon for each. It ranks better than
# either.

model = PrivateAdditiveTreeClassifier(
    epsilon=1.0, schema=schema, classes=("no", "yes")
)
model.fit(known, known["y"])
model.card_

# %%
# **Result.** Among the 10% with the highest scores there are several times as many deposits as among all.

scores, deposit = model.decision_function(later), (later["y"] == "yes").to_numpy()
first = scores.argsort()[::-1][: len(later) // 10]
print(f"area under the curve: {roc_auc_score(deposit, scores):.3f}")
print(
    f"deposits: {deposit.mean():.0%} of all calls, {deposit[first].mean():.0%} of the first tenth"
)

# %%
# **Cost.**

model.spend_

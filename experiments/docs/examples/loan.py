"""
Loan: what its size depends on
==============================

**Question.** How much larger is a loan that runs a month longer, or one of somebody with a telephone (this was
in the nineties)? The answer should come with intervals.

**Data.** German Credit (Hofmann 1994, UCI): 1,000 loans, in Deutsche Mark.
"""

from privopt.mechanisms import PrivateLinearRegression
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.uci import load_credit

loans = load_credit()

# %%
# **Schema.** From the form, as public facts: a loan runs for six years at most, and none is above 20,000 marks.

schema = Schema(
    [
        Numeric("duration", 0, 72),
        Categorical("telephone", ["none", "yes"]),
    ],
    intercept=True,
)

# %%
# **Fit.** Least squares on noisy moments. 1,000 records are few, so epsilon is 3, and two columns have to do.

model = PrivateLinearRegression(epsilon=3.0, schema=schema, label_range=(0, 20_000))
model.fit(loans, loans["amount"])

# %%
# **Result.** Marks for each month, and for a telephone against none. The intervals include the noise for privacy, which
# makes up most of their width.

model.summary()

# %%
# **What if.** Two loans that nobody took out: for one year, and for three.

for months in (12, 36):
    asked = {"duration": [months], "telephone": ["yes"]}
    print(f"{months} months: {model.predict(asked)[0]:,.0f} marks")

# %%
# **Cost.**

model.spend_

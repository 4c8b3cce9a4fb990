"""
Hours of work: coefficients with intervals
==========================================

**Question.** How do weekly hours of work change with age and education? Wanted are effects rather than
predictions, with confidence intervals that include the noise for privacy.

**Data.** Adult (Becker and Kohavi 1996, UCI).
"""

from privopt.mechanisms import PrivateLinearRegression
from privopt.problems import Categorical, Numeric, Schema
from privopt.problems.datasets.adult import load_adult

people = load_adult("train")

# %%
# **Schema.** Bounds of the columns, and of the hours (``label_range`` below), are declared.

schema = Schema(
    [
        Numeric("age", 17, 90),
        Numeric("education-num", 1, 16),
        Categorical("sex", ["Female", "Male"]),
    ],
    intercept=True,
)

# %%
# **Fit.** Least squares on noisy moments, released once. Intervals follow from the same release, at no
# further cost.

model = PrivateLinearRegression(epsilon=1.0, schema=schema, label_range=(1, 99))
model.fit(people, people["hours-per-week"])
print(model.mechanism_)

# %%
# **Result.** Hours per year of age, per year of school, and of men beside women of the same age and school.

model.summary()

# %%
# **Cost.**

model.spend_

"""
Income: a scorecard for 32,561 people
=====================================

**Question.** Who earns more than 50,000 dollars a year? The answer should be points that anybody can add up.

**Data.** Adult, an extract of the 1994 census of the United States (Becker and Kohavi 1996, UCI).
"""

from privopt.mechanisms import PrivateHalfspaceClassifier, evaluate
from privopt.problems import Binned, Categorical, Schema
from privopt.problems.datasets.adult import ADULT_TARGET, load_adult

people, others = load_adult("train"), load_adult("test")

# %%
# **Schema.** Ages in bands, years of school, hours of work and family status are declared from the
# questionnaire of the census, not from the records.

schema = Schema(
    [
        Binned("age", edges=[17, 25, 35, 45, 55, 65, 90]),
        Binned("education-num", edges=[1, 9, 10, 13, 14, 16]),
        Binned("hours-per-week", edges=[1, 35, 40, 45, 60, 99]),
        Categorical(
            "relationship",
            "Wife Own-child Husband Not-in-family Other-relative Unmarried".split(),
        ),
    ],
    intercept=True,
)

# %%
# **Fit.** Epsilon 1 in all; a fifth of it pays for the table from points to risks.

card = PrivateHalfspaceClassifier(
    epsilon=1.0, schema=schema, classes=("<=50K", ">50K"), risk_share=0.2
)
card.fit(people.drop(columns=[ADULT_TARGET]), people[ADULT_TARGET])
card.card_

# %%
# **Result.** The test half are other people, so measuring on them costs its own epsilon, here .5.

report = evaluate(
    card, others.drop(columns=[ADULT_TARGET]), others[ADULT_TARGET], epsilon=0.5
)
report

# %%
# **Cost.**

card.spend_

"""
Mushrooms: a list of rules
==========================

**Question.** Edible or poisonous? The answer should be a short list of rules, read from the top.

**Data.** 8,124 descriptions of mushrooms from a field guide (UCI, 1981). Nobody's privacy is at stake here:
the table shows what a table with strong rules gives at a small epsilon.
"""

from privopt.mechanisms import PrivateRuleListClassifier
from privopt.problems import Categorical, Schema
from privopt.problems.datasets.uci import load_mushrooms

mushrooms = load_mushrooms().sample(frac=1, random_state=0)
known, later = mushrooms[:5_000], mushrooms[5_000:]

# %%
# **Schema.** The words of the field guide.

schema = Schema(
    [
        Categorical(
            "odor",
            "almond anise creosote fishy foul musty none pungent spicy".split(),
        ),
        Categorical("gill-size", ["broad", "narrow"]),
        Categorical("bruises", ["yes", "no"]),
        Categorical(
            "spore-print-color",
            "black brown buff chocolate green orange purple white yellow".split(),
        ),
        Categorical(
            "population",
            "abundant clustered numerous scattered several solitary".split(),
        ),
        Categorical(
            "habitat", "grasses leaves meadows paths urban waste woods".split()
        ),
    ]
)

# %%
# **Fit.** Rule lists are drawn by the exponential mechanism, exactly, at epsilon .2.

rules = PrivateRuleListClassifier(
    epsilon=0.2, schema=schema, classes=("edible", "poisonous")
)
rules.fit(known, known["class"])
rules.card_

# %%
# **Result.** On mushrooms that the fit did not read:

print(f"accuracy {(rules.predict(later) == later['class']).mean():.3f}")

# %%
# **Cost.**

rules.spend_

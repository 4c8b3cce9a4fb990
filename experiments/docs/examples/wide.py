"""
Wide and sparse: 20,000 columns
===============================

**Question.** Which of 20,000 words tell that a report is urgent? Almost all cells are 0.

**Data.** Made up here: 20,000 reports of some 60 words each; 30 words matter.
"""

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateLogisticRegression

rng, n, p = np.random.default_rng(0), 20_000, 20_000
words = np.minimum(rng.zipf(1.3, (n, 60)), p) - 1
reports = sp.csr_array(
    (np.ones(words.size), (np.repeat(np.arange(n), 60), words.ravel())),
    shape=(n, p),
)
reports.data[:] = 1
reports = (reports > 0).astype(np.float64)
weights = np.zeros(p)
weights[5:65:2] = rng.normal(0, 2, 30)
score = np.asarray(reports @ weights)
urgent = np.where(
    rng.random(n) < 1 / (1 + np.exp(score.mean() - score)), "yes", "no"
)

# %%
# **Schema.** None is needed, nor a list of words: all that is declared is that no cell is larger
# than 1 (``norm="linf"``, ``data_norm=1``). Epsilon is 3.

model = PrivateLogisticRegression(
    epsilon=3.0, norm="linf", data_norm=1.0, classes=("no", "yes")
)
model.fit(reports[:15_000], urgent[:15_000])
print(f"mechanism: {model.mechanism_}")

# %%
# **Result.**

print(
    f"area under the curve: {roc_auc_score(urgent[15_000:], model.decision_function(reports[15_000:])):.3f}"
)
print(f"columns with a weight: {np.count_nonzero(model.coef_)}")

# %%
# **Cost.**

model.spend_

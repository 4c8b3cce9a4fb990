"""
Wide and sparse: words of e-mails
=================================

**Question.** Which words tell that an e-mail is spam? Almost all cells are 0.

**Data.** 5,849 e-mails of 2002, the public corpus of SpamAssassin; 30% are spam. A column is a word: 32,768 columns, of
which an e-mail has 73 on average. A fixed hash gives each word its column: a list of the words that
occur would have been read off the private e-mails.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

from privopt.mechanisms import PrivateLogisticRegression
from privopt.problems.datasets.emails import load_emails, word_column

emails, kind = load_emails()

# %%
# **Schema.** None is needed, nor a list of words: all that is declared is that no cell is larger
# than 1 (``norm="linf"``, ``data_norm=1``). Epsilon is 3.

model = PrivateLogisticRegression(
    epsilon=3.0, norm="linf", data_norm=1.0, classes=("ham", "spam")
)
model.fit(emails[:4_500], kind[:4_500])
print(f"mechanism: {model.mechanism_}")

# %%
# **Result.** Without privacy a logistic regression of all words reaches an area under the curve of .995.

scores = model.decision_function(emails[4_500:])
print(f"area under the curve: {roc_auc_score(kind[4_500:] == 'spam', scores):.3f}")
print(f"columns with a weight: {np.count_nonzero(model.coef_)}")

# %%
# Words may be looked up as often as one likes: the weights are public now.

for word in ("click", "free", "remove", "dollars", "list", "linux", "wrote"):
    print(f"{word:>8} {model.coef_.ravel()[word_column(word)]:+.2f}")

# %%
# **Cost.**

model.spend_

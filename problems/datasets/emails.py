"""E-mails as words, a wide and sparse table shipped with the package for examples.

The SpamAssassin public mail corpus; source, licence and changes are in data/LICENSE-emails.txt. The table has
no text: a word is known by the number of its column alone. The e-mails are public, so nothing here needs a
privacy budget; they stand in for private ones.
"""

from __future__ import annotations

from importlib.resources import files
from zlib import crc32

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

EMAIL_COLUMNS = 2**15


def load_emails() -> tuple[sp.csr_array, NDArray[np.str_]]:
    """Load 5,849 e-mails of 2002, in random order, with labels "spam" (30%) or "ham" (wanted mail).

    A cell is 1 if one of the first hundred different words of an e-mail (subject, then text; letters only)
    has this column, and 0 otherwise. ``word_column`` is a hash: no vocabulary was taken from the e-mails.
    """
    with (
        (files("privopt.problems.datasets") / "data" / "emails.npz").open("rb") as raw,
        np.load(raw) as stored,
    ):
        spam, words, steps = (
            stored["spam"],
            stored["words"].astype(np.int64),
            stored["steps"].astype(np.int64),
        )
    ends = np.cumsum(words)
    total = np.cumsum(steps)  # ``steps`` are differences of neighbouring columns within an e-mail
    columns = total - np.repeat(np.r_[0, total[ends[:-1] - 1]], words)
    shape = (len(words), EMAIL_COLUMNS)
    table = sp.csr_array((np.ones(len(columns)), columns, np.r_[0, ends]), shape=shape)
    return table, np.where(spam, "spam", "ham")


def word_column(word: str) -> int:
    """Return the column of a word: a fixed hash of its letters in lower case; some words share one."""
    return crc32(word.lower().encode()) % EMAIL_COLUMNS

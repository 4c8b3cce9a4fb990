"""Hospital stays of patients with diabetes, a small table shipped with the package for examples.

MIT licence; source and changes are in data/LICENSE-readmissions.txt. Its source calls it sample data, and
does not say where the records come from.
"""

from __future__ import annotations

from importlib.resources import files

import pandas as pd


def load_readmissions() -> pd.DataFrame:
    """Load stays in hospital: 1,000 rows of 161 patients, and ``readmitted`` within 30 days: yes (15%) or no.

    A row has the patient, systolic blood pressure, LDL cholesterol, A1C (long-term blood sugar, in percent)
    and the gender. Measurements are missing in 13 rows; 10 outcomes are missing.
    """
    with (files("privopt.problems.datasets") / "data" / "readmissions.csv.gz").open("rb") as stored:
        return pd.read_csv(stored, compression="gzip")

"""Labels as indices of classes: text that Arrow holds is checked once per distinct one, with one answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse as sp

from privopt.mechanisms.estimators.columns import dense_columns
from privopt.mechanisms.estimators.labels import label_indices, public_classes
from privopt.mechanisms.estimators.prepared import Targets
from privopt.problems.convex.losses import LogisticLoss
from privopt.problems.errors import InvalidInputError, SchemaError

CLASSES = np.array(["well", "ill"])
TEXTS = ["ill", "well", "well", "ill"]


def held(texts: list[Any], form: str) -> Any:
    if form == "polars":
        return pytest.importorskip("polars").Series("y", texts)
    forms: dict[str, Any] = {
        "objects": lambda: np.array(texts, dtype=object),
        "pandas": lambda: pd.Series(texts, dtype=pd.StringDtype("pyarrow")),
        "arrow": lambda: pa.array(texts),
        "chunks": lambda: pa.chunked_array([texts[:1], texts[1:]], type=pa.string()),
        "categories": lambda: pd.Series(texts, dtype="category"),
    }
    return forms[form]()


FORMS = ("objects", "pandas", "arrow", "chunks", "categories", "polars")


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_every_form_have_the_same_indices(form: str) -> None:
    assert label_indices(held(TEXTS, form), 4, CLASSES).tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_labels_of_every_form_are_refused_in_the_same_words(form: str) -> None:
    refused: list[tuple[list[Any], int, str]] = [
        ([*TEXTS[:3], "Quagmire"], 4, "outside the declared classes"),
        ([*TEXTS[:3], None], 4, "missing labels"),
        (TEXTS, 5, "X has 5 rows and y has 4"),
    ]
    for texts, rows, message in refused:
        with pytest.raises(InvalidInputError, match=message) as caught:
            label_indices(held(texts, form), rows, CLASSES)
        assert "Quagmire" not in str(caught.value)


def test_text_of_arrow_that_is_no_text_is_refused() -> None:
    broken = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")]
    )
    with pytest.raises(InvalidInputError, match="no text"):
        label_indices(broken, 1, CLASSES)


def test_classes_that_floats_do_not_tell_apart_are_refused() -> None:
    assert public_classes((0, 2**53 - 1), np.array([])).tolist() == [0, 2**53 - 1]
    with pytest.raises(SchemaError, match="classes: integers must be below"):
        public_classes((2**53, 2**53 + 1), np.array([]))


def test_labels_carry_the_weights_of_their_classes() -> None:
    labels, number = [np.array([-1.0, 1.0, 1.0])], np.array([0, 1, 1])
    targets = Targets(labels, LogisticLoss(), np.array(["a", "b"]), number=number)
    assert targets.weighted(np.array([0.5, 2.0])).labels[0].tolist() == [-0.5, 2.0, 2.0]
    for weights in (None, np.array([3.0, 3.0])):
        assert targets.weighted(weights) is targets


def test_arrays_are_not_taken_for_sparse_matrices() -> None:
    X = np.array([[0, 1], [2, 3]])
    assert dense_columns(X) is X
    assert dense_columns(sp.csr_array(X > 1)).tolist() == [[0, 0], [1, 1]]

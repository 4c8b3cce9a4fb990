"""What the estimators share: public facts and where they come from, booking, files."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from privopt.mechanisms.privacy.parameters import check_delta
from privopt.mechanisms.privacy.spend import PrivacySpend
from privopt.oracles.limits import check_limits as check_limits
from privopt.problems.arguments import as_path, told
from privopt.problems.arrays import check_unmasked
from privopt.problems.errors import InvalidInputError, InvalidTypeError, PrivacyLeakWarning
from privopt.problems.parts import Blocks
from privopt.problems.tables.columns import check_exact, positions
from privopt.problems.tables.counted import CountedRecords
from privopt.problems.tables.engines import count_records, is_engine_table
from privopt.problems.tables.partitions import computed, is_dask, lazily, parts_of
from privopt.problems.tables.schema import IntegerFeatures, Schema

if TYPE_CHECKING:
    from privopt.mechanisms.privacy.ledger import Ledger

_UNDECLARED = (
    "records that are counted where they are need a declared schema and declared classes: nothing is read "
    "off them, and regression needs a table in memory"
)
# What pandas calls arrays that hold text alone, or whole numbers alone: neither has missing entries.
_ONE_KIND = ("string", "integer", "boolean")
# Data frames of so many records are counted before a linear model is fitted, which costs as much as a few
# passes over them; not by columns with more values than this, which hardly any two records share.
_LONG, _MOST_CODES = 100_000, 4096
_NOT_NUMBERS = "{} holds text where numbers are needed; declare a schema, or convert the column"


def keep_arguments(estimator: BaseEstimator, arguments: Mapping[str, Any]) -> None:
    """Every argument of ``__init__`` as an attribute, unread, as scikit-learn wants it."""
    vars(estimator).update((name, value) for name, value in arguments.items() if name != "self")


def checked_labels(y: ArrayLike, n_rows: int) -> NDArray[Any]:
    """Class labels, shape (n_rows,), n_rows >= 1, none missing.

    Raises:
        InvalidInputError, ValueError: labels that are not; no value is quoted.
    """
    check_given(y)
    check_unmasked(y, "y")
    if np.ndim(y if isinstance(y, np.ndarray) else np.asarray(y, dtype=object)) == 0:
        raise InvalidInputError(f"y must hold one label per record, shape ({n_rows},); got {told(y)}")
    given = np.ravel(np.asarray(y, dtype=None if hasattr(y, "dtype") else object))
    if pd.api.types.infer_dtype(given, skipna=False) not in _ONE_KIND:
        if np.any(pd.isna(np.asarray(y, dtype=object))):
            raise InvalidInputError("y holds missing labels: give them a class of their own")
        texts = [isinstance(label, str) for label in np.ravel(np.asarray(y, dtype=object))]
        if any(texts) and not all(texts):
            raise InvalidInputError("y mixes text with other labels; make them one type")
    try:
        if np.asarray(y).dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        # It compares labels with themselves as integers; and how many different ones there are is not told.
        with np.errstate(invalid="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_classification_targets(y)
        labels = column_or_1d(y, warn=True)
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None
    if len(labels) != n_rows:
        raise InvalidInputError(f"X has {n_rows} rows and y has {len(labels)}")
    if len(labels) == 0:
        raise InvalidInputError("no records: at least one row is needed")
    return np.asarray(labels)


def validated(estimator: BaseEstimator, X: Any, *y: ArrayLike, **options: Any) -> Any:
    """scikit-learn's ``validate_data``, less the cells that its errors quote.

    Raises:
        InvalidInputError: anything but a table of finite real numbers with the columns of ``fit``.
        InvalidTypeError: objects that are no numbers.
    """
    for values, name in zip((X, *y), "Xy", strict=False):
        check_unmasked(values, name)
    if not options.get("skip_check_array"):
        check_no_text(X, "X")
    try:
        return validate_data(estimator, X, *y, **options)
    except (TypeError, IndexError, OverflowError):
        raise InvalidTypeError(
            "X holds other things than numbers: an argument must be neither text (a string) nor an object "
            "but a number; declare a schema, or convert the column"
        ) from None
    except ValueError as error:
        raise InvalidInputError(without_values(error)) from None


def check_no_text(values: Any, name: str) -> None:
    """Raise InvalidInputError for text, which scikit-learn would read as numbers where it can."""
    parts = [values[column] for column in values] if isinstance(values, pd.DataFrame) else [values]
    for part in parts:
        try:
            array = None if sp.issparse(part) else np.asarray(part)
        except ValueError:  # rows of different lengths
            return
        if array is not None and (
            array.dtype.kind in "SU"
            or (array.dtype == object and any(isinstance(v, str) for v in array.flat))
        ):
            raise InvalidInputError(_NOT_NUMBERS.format(name))


def as_table(X: Any) -> Any:
    """A dict of columns as a data frame; anything else as it is.

    Raises:
        InvalidInputError: columns that are none.
    """
    if not isinstance(X, Mapping) or sp.issparse(X):
        return X
    for values in X.values():
        check_unmasked(values, "a column")
    try:
        return pd.DataFrame(X)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "a dict of columns needs one list or array for each name, all of one length"
        ) from None


def by_parts(method: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A method of predictions for tables in parts, too: a Dask collection gives a lazy Dask array.

    A memory-mapped file is read in blocks; what is predicted is in memory.
    """

    @wraps(method)
    def predicted(model: Any, X: Any) -> Any:
        if is_dask(X):
            check_is_fitted(model)
            dtype, columns = _predicted(model, method.__name__)
            return lazily(X, partial(method, for_workers(model)), dtype, columns)
        if isinstance(X, np.memmap) and X.ndim == 2 and len(X):
            return np.concatenate(Blocks.of(X).each(lambda part: method(model, np.asarray(part[0]))))
        return method(model, X)

    return predicted


def _predicted(model: Any, name: str) -> tuple[Any, tuple[int, ...]]:
    """The type of what a method predicts, and the shape of a prediction."""
    classes = getattr(model, "classes_", None)
    if name == "predict":
        return np.dtype(np.float64) if classes is None else classes.dtype, ()
    one = name == "decision_function" and len(classes) == 2  # type: ignore[arg-type]
    return np.dtype(np.float64), () if one else (len(classes),)  # type: ignore[arg-type]


def for_workers(model: Any) -> Any:
    """A model that predicts elsewhere, without what belongs to this process or to its fit.

    A record's score does not depend on the part that it lies in (``alike``).
    """
    light = copy.copy(model)
    vars(light).update(
        dict.fromkeys({"ledger", "limits", "oracle", "release_", "releases_"} & set(vars(light)))
    )
    vars(light)["alike"] = True
    return light


def without_values(error: ValueError) -> str:
    """What scikit-learn says of data that it refuses, less the values that it quotes and its advice."""
    text = str(error)
    first = text.split("\n")[0]
    if first.startswith("Expected 2D array"):
        return (
            f"{first.split(':')[0]}: one row per record. Reshape your data, with X.reshape(1, -1) if it is a "
            "single record"
        )
    if "Complex data not supported" in text:
        return "Complex data not supported: real numbers are needed"
    if "could not convert" in text:
        return _NOT_NUMBERS.format("X")
    if first.startswith("Unknown label type: continuous"):
        return "Unknown label type: continuous. For numbers use PrivateLinearRegression, or --loss squared"
    if first.startswith(("Input ", "The feature names")):  # ... contains NaN, or infinity; and then names
        return first
    return text


class ScoredClassifier(ClassifierMixin):  # type: ignore[misc]
    """scikit-learn's classifier, with a score whose errors quote no labels."""

    classes_: NDArray[Any]

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """The share of right predictions. Not private.

        Raises:
            InvalidInputError: unusable labels, or text where the classes are numbers, or the reverse.
        """
        predicted, y = computed(self.predict(X), y)
        labels = checked_labels(y, len(predicted))
        if (labels.dtype.kind in "OU") != (self.classes_.dtype.kind in "OU"):
            raise InvalidInputError("y and the classes must both be text, or both numbers")
        return float(accuracy_score(labels, predicted, sample_weight=sample_weight))


def check_given(y: ArrayLike | None) -> None:
    """Raise InvalidInputError without labels, in scikit-learn's words."""
    if y is None:
        raise InvalidInputError("this estimator requires y to be passed, but the target y is None")


def public_classes(declared: Sequence[Any] | None, labels: NDArray[Any]) -> NDArray[Any]:
    """The declared classes; or those in the labels, with a PrivacyLeakWarning.

    Raises:
        InvalidInputError: not a list of texts, or of whole numbers or booleans that floats can tell apart.
    """
    if declared is None:
        leak("classes were read off the labels, which is not private; pass classes=(negative, positive)")
        classes = np.unique(labels)
    else:
        if isinstance(declared, str | bytes) or not isinstance(declared, Sequence | np.ndarray | pd.Series):
            raise InvalidInputError('classes must be a list of labels, such as ("well", "ill")')
        kinds = {"text" if isinstance(c, str) else "whole" if _is_whole(c) else "other" for c in declared}
        if len(kinds) > 1 or "other" in kinds:
            raise InvalidInputError("classes must be all text, or all integers or booleans")
        classes = np.asarray(declared)
    check_exact("classes", classes.tolist())
    return classes


def _is_whole(value: object) -> bool:
    if isinstance(value, float | np.floating):
        return float(value).is_integer()
    return isinstance(value, int | np.integer | np.bool_)


def signs(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """-1 and +1 for two classes, shape (n,).

    Raises:
        InvalidInputError: a label that is neither.
    """
    return np.where(class_indices(labels, classes) == 1, 1, -1).astype(np.int64)


def class_indices(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each label's class, shape (n,): compared as the categories of a schema are.

    Raises:
        InvalidInputError: a label outside the classes.
    """
    known = classes.tolist()
    found = positions("y", labels, {c: i for i, c in enumerate(known)})
    if bool(np.any(found < 0)):
        raise InvalidInputError(
            f"y holds labels outside the declared classes {', '.join(map(repr, known))}; "
            f"declare them, or correct the declaration"
        )
    return found


def declared_schema(given: Schema | dict[str, Any] | str | Path) -> Schema:
    """A schema as estimators take it: itself, its dictionary, or the path of its file.

    Raises:
        SchemaError: no such file, or not a declaration.
    """
    if isinstance(given, Schema):
        return given
    return Schema.from_dict(given) if isinstance(given, dict) else Schema.load(given)


def counted_records(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> CountedRecords | None:
    """The records of a table in an engine, or records that were counted already; None for other tables.

    Args:
        X: an Ibis table, and y the name of its label column; or ``CountedRecords``, and y None.
        schema, classes: as declared to the estimator; the records', if they were counted already.

    Raises:
        InvalidInputError: facts that are not declared, or others than records were counted by; and as
            ``count_records``.
    """
    counted = X if isinstance(X, CountedRecords) else None
    if counted is None and not is_engine_table(X):
        return None
    if schema is None or classes is None:
        raise InvalidInputError(_UNDECLARED)
    facts, known = declared_schema(schema), public_classes(classes, np.array([])).tolist()
    if counted is None:
        return count_records(X, facts, y, known)
    if y is not None or counted.schema != facts or list(counted.classes) != known:
        raise InvalidInputError("records were counted by another schema, or for other classes: count again")
    return counted


def counted_parts(
    X: Any, y: Any, schema: Schema | dict[str, Any] | str | Path | None, classes: Sequence[Any] | None
) -> CountedRecords:
    """The records of Dask collections, counted where they are; errors as ``counted_records``."""
    if schema is None or classes is None:
        raise InvalidInputError(_UNDECLARED)
    facts, known = declared_schema(schema), public_classes(classes, np.array([]))
    parts = parts_of(X, y, [column.name for column in facts.columns])
    assert parts is not None
    return CountedRecords.together(parts.each(partial(_counted, schema=facts, classes=known)))


def counted_here(
    X: Any, y: Any, schema: Schema | None, classes: Sequence[Any] | None
) -> CountedRecords | None:
    """The records of a long table in memory, counted, if its columns can be; otherwise None.

    Whether they are depends on public facts alone. Errors are those of ``Schema.encode`` and of labels.
    """
    if schema is None or classes is None or not isinstance(X, pd.DataFrame) or len(X) < _LONG:
        return None
    if max(column.n_codes for column in schema.columns) > _MOST_CODES:
        return None
    return _counted((X, y), schema, public_classes(classes, np.array([])))


def _counted(pair: tuple[Any, Any], schema: Schema, classes: NDArray[Any]) -> CountedRecords:
    X, y = pair
    codes = schema.codes(X)
    label = class_indices(checked_labels(y, len(codes[0])), classes)
    return CountedRecords.of(schema, codes, classes.tolist(), label)


def integer_features(schema: Schema, X: Any) -> IntegerFeatures:
    """The features of a table in memory, or of the rows of counted records.

    Raises:
        InvalidInputError: a table in an engine, or records that were counted by another schema.
        SchemaError: as ``Schema.encode``.
    """
    if is_engine_table(X):
        raise InvalidInputError(
            "predictions are made in memory, by X.to_pandas() in parts; or in the engine: scorecards have "
            "to_sql"
        )
    if not isinstance(X, CountedRecords):
        return schema.encode(X)
    if X.schema != schema:
        raise InvalidInputError("records were counted by another schema: count again")
    return X.features


def public_delta(delta: float | str, n: int) -> float:
    """delta, or 1/n^2 for "auto"."""
    if isinstance(delta, str) and delta != "auto":
        raise InvalidInputError(f'delta must be a number in (0, 1) or "auto", got {delta!r}')
    if isinstance(delta, str) and n < 2:
        raise InvalidInputError("n_samples = 1: delta = 1/n^2 needs 2 records or more; give delta")
    return 1.0 / n**2 if isinstance(delta, str) else check_delta(delta, zero_allowed=True)


@contextmanager
def booked(ledger: Ledger | str | Path | None, spend: PrivacySpend) -> Iterator[None]:
    """Reserve the spend for as long as the release runs, if there is a ledger.

    Whatever goes wrong after that carries a note: the reservation stays.
    """
    if ledger is None:
        yield
        return
    from privopt.mechanisms.privacy.ledger import Ledger  # whose library for databases most fits do not need

    book, reserved = ledger if isinstance(ledger, Ledger) else Ledger(ledger), False
    try:
        with book.spending(spend):
            reserved = True
            yield
    except BaseException as error:
        if reserved:
            error.add_note(
                f"The reserved epsilon = {spend.epsilon:g}, delta = {spend.delta:.3g} counts as spent in "
                f"{book}: the run had started, and how it ended may depend on the records"
            )
        raise


def leak(message: str) -> None:
    """Warn that a fact was read off private data."""
    warnings.warn(message, PrivacyLeakWarning, stacklevel=4)


def read_model(path: str | Path, file_format: str) -> dict[str, Any]:
    """What a saved model's file holds.

    Raises:
        InvalidInputError: no such file, or not one of that format.
    """
    file = as_path(path, "a model")
    try:
        model = json.loads(file.read_text("utf-8-sig"), parse_constant=_refused_constant)
    except OSError as error:
        raise InvalidInputError(f"{file}: {(error.strerror or 'it cannot be read').lower()}") from error
    except (ValueError, RecursionError):
        model = None
    if not isinstance(model, dict) or model.get("format") != file_format:
        raise InvalidInputError(
            f"{file} is not a {file_format.split('/')[0]} that privopt saved; model.save and "
            "`privopt fit --save` write such files"
        )
    return model


def _refused_constant(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def check_whole_model(model: Mapping[str, Any], again: Mapping[str, Any], path: object) -> None:
    """Raise InvalidInputError unless a file holds what the model that was read from it would save."""
    same = json.loads(json.dumps(again))
    wrong = sorted(key for key in model if key not in same or model[key] != same[key])
    if wrong:
        raise InvalidInputError(
            f"{path}: {', '.join(map(told, wrong))} cannot be, beside the rest of the file; not saved so"
        )

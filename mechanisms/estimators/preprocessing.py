"""Warning for pipelines whose transformers were fitted to records without privacy."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from privopt.mechanisms.estimators.transformer import SchemaTransformer
from privopt.problems.errors import PrivacyLeakWarning


def warn_of_fitted_steps(model: Any) -> None:
    """Warn of transformers that learned from records, in a fitted pipeline around a private estimator.

    An estimator counts as private if it has a ``spend_``, or a parameter ``epsilon`` or ``mu``. There is no
    leak from transformers that learn nothing (no ``requires_fit`` in their tags), from schemas, or from
    transformers with declared ``categories``. Nested pipelines are searched; transformers fitted outside of
    the pipeline are not noticed.
    """
    if not isinstance(model, Pipeline) or not _is_private(model.steps[-1][1]):
        return
    learned = list(dict.fromkeys(type(step).__name__ for step in _transformers(model) if _learns(step)))
    if learned:
        warnings.warn(
            f"{', '.join(learned)} before {type(model.steps[-1][1]).__name__}: fitted to records without "
            "privacy, which no spend covers, unless these records were public. To do: SchemaTransformer, or "
            "the schema of the estimator, which read bounds and categories from a declaration",
            PrivacyLeakWarning,
            stacklevel=3,
        )


def _is_private(model: Any) -> bool:
    known = model.get_params(deep=False) if hasattr(model, "get_params") else {}
    return hasattr(model, "spend_") or "epsilon" in known or "mu" in known


def _transformers(model: Any) -> Iterator[Any]:
    """Yield the transformers of a pipeline in order, including those inside other transformers."""
    if isinstance(model, Pipeline):
        inner = [step for _, step in model.steps if not hasattr(step, "predict")]
    elif isinstance(model, ColumnTransformer):
        inner = [step for _, step, _ in getattr(model, "transformers_", model.transformers)]
    elif isinstance(model, FeatureUnion):
        inner = [step for _, step in model.transformer_list]
    else:
        yield model
        return
    for step in inner:
        if not isinstance(step, str | None):  # "passthrough" and "drop"
            yield from _transformers(step)


def _learns(step: Any) -> bool:
    if isinstance(step, SchemaTransformer):
        return False
    declared = getattr(step, "categories", "auto")
    return get_tags(step).requires_fit and isinstance(declared, str)

"""``--learn-schema``: a schema and a model learned from the same records, as one release."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privopt.experiments.cli.files import json_text, kept_aside
from privopt.experiments.cli.parsing import split_labels
from privopt.experiments.cli.schema import read_unlearned
from privopt.experiments.cli.tables import Labelled, labelled
from privopt.mechanisms.estimators.learned_engine import EngineRecords
from privopt.mechanisms.estimators.learned_fit import fit_learned, learned_before
from privopt.mechanisms.estimators.public_facts import declared_schema
from privopt.problems.datasets.adult import ADULT23_CLASSES, ADULT_TARGET
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.tables.sources import is_engine_table


@dataclass(frozen=True, eq=False)
class LearnedFit:
    """Labelled records without a schema, and the public facts for learning one.

    Attributes:
        records: the records, with what is declared of their labels.
        engine: the same records, if an engine holds them.
        share: the share of the budget that the schema spends.
        kinds: the types of the columns to learn.
        options: further options of ``SchemaPlan.plan``.
    """

    records: Labelled
    share: float
    kinds: dict[str, str]
    options: dict[str, Any]
    engine: EngineRecords | None = None

    def fit(self, estimator: Any) -> Any:
        """Plan schema and model, book both, learn the schema and fit the model."""
        given = self.records.unread() if self.engine is None else self.engine
        try:
            fitted = fit_learned(estimator, given, self.kinds, self.share, self.options)
        except PrivOptError as error:
            if (found := learned_before(error)) is not None:
                path = kept_aside(json_text(found.schema.to_dict()))
                error.add_note(f"The learned schema is in {path}: pass it as --schema")
            raise
        if self.engine is not None:
            self.records.keep(self.engine.counted(fitted.schema))
        return fitted


def read_for_learning(
    data: str,
    target: str | None,
    schema: Path | None,
    classes: tuple[Any, ...] | None,
    table: str | None,
    na_values: str | None,
    share: float,
    types: str | None = None,
    person: str | None = None,
) -> LearnedFit:
    """Open a table from which a schema is to be learned; no cell is interpreted.

    Raises:
        InvalidInputError, SchemaError: facts that are missing, or a table that cannot be read.
    """
    if data == "adult23":
        target, classes = target or ADULT_TARGET, classes or ADULT23_CLASSES
    if target is None:
        raise InvalidInputError("--target is needed: the name of the label column")
    known = None if schema is None else declared_schema(schema)
    given = read_unlearned(data, types, known, [target, *([] if person is None else [person])], table)
    markers = [] if na_values is None else split_labels("--na-values", na_values)
    options = {"declared": known, "na_values": markers}
    if not is_engine_table(given.frame):
        return LearnedFit(labelled(given.frame, target, known, classes), share, given.types, options)
    written = classes is not None and isinstance(classes[0], str)
    engine = EngineRecords(given.frame, target, classes, written=written)
    records = Labelled(engine.unread(), None, classes, target)
    return LearnedFit(records, share, given.types, options, engine)

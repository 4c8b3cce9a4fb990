"""Saved models: writing files, and reading files, which are untrusted input."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from privopt.problems.arguments import as_path, told
from privopt.problems.errors import InvalidInputError, PrivOptError
from privopt.problems.files import write_atomically


class SavedModel:
    """Base of models that are saved as JSON files.

    Class attributes: ``file_format``, the first entry of a file; ``not_restored``, entries of a file that
    loading does not restore.
    """

    file_format: ClassVar[str]
    not_restored: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the contents of a saved model: only released values and public facts."""

    @classmethod
    @abstractmethod
    def _restored(cls, model: Mapping[str, Any]) -> Self:
        """Return the model of a dictionary; it may raise any type of error that ``from_dict`` converts."""

    def save(self, path: str | Path) -> None:
        """Write the model as JSON: only released values and public facts."""
        write_atomically(path, json.dumps(self.to_dict(), indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a model written by ``save``, with its predictions and its spend.

        Raises:
            InvalidInputError: an invalid file, or a model of another kind.
        """
        return cls.from_dict(read_model(path, cls.file_format), path)

    @classmethod
    def from_dict(cls, model: dict[str, Any], path: object = "the model") -> Self:
        """Return the model of a dictionary from ``to_dict``; ``path`` names its file in errors.

        Raises:
            InvalidInputError: the dictionary is not from ``to_dict``.
        """
        try:
            fitted = cls._restored(model)
        except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError) as error:
            what = str(error) if isinstance(error, PrivOptError) else type(error).__name__
            raise InvalidInputError(f"{path} is not a saved {cls.__name__}: {what}") from error
        check_whole_model(model, fitted.to_dict() | {key: model[key] for key in cls.not_restored}, path)
        return fitted


def read_model(path: str | Path, file_format: str) -> dict[str, Any]:
    """Read the dictionary in the file of a saved model.

    Raises:
        InvalidInputError: no such file, or a file of another format.
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
    """Raise InvalidInputError unless saving the loaded model again reproduces the file's content."""
    same = json.loads(json.dumps(again))
    wrong = sorted(key for key in model if key not in same or model[key] != same[key])
    if wrong:
        raise InvalidInputError(
            f"{path}: {', '.join(map(told, wrong))} contradicts the rest of the file; "
            "privopt did not save it so"
        )

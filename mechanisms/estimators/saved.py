"""Reading and validation of saved model files, which are untrusted input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from privopt.problems.arguments import as_path, told
from privopt.problems.errors import InvalidInputError


def read_model(path: str | Path, file_format: str) -> dict[str, Any]:
    """Read the dictionary in a saved model file.

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
            f"{path}: {', '.join(map(told, wrong))} cannot be, beside the rest of the file; not saved so"
        )

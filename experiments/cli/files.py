"""Files that a command is to write: found out before anything is spent, paid for once it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from privopt.experiments.cli.errors import InterruptedRunError
from privopt.problems.errors import InvalidInputError
from privopt.problems.files import check_writable

say = Console(stderr=True, emoji=False)


def check_files(outputs: dict[str, Path | None]) -> None:
    """Find out before anything is spent that a file cannot be written; say so if one is replaced."""
    for option, path in outputs.items():
        check_writable(path, option)
        if path is not None and path.exists():
            say.print(
                f"note: {option} {path}: the file exists, and is replaced", highlight=False, markup=False
            )


@contextmanager
def released() -> Iterator[None]:
    """Say of what fails or is interrupted after a release that the model is paid for."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise InterruptedRunError("Interrupted: the model was released, and is paid for") from error
    except OSError as error:
        raise InvalidInputError(
            f"{error.filename}: {(error.strerror or 'cannot be written').lower()}. The model above was "
            f"released and is paid for: keep what is printed"
        ) from error

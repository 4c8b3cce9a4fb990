"""Options of a mechanism: the keyword arguments of ``_calibrated``, in its class and in its base."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any, TypedDict

from privopt.mechanisms.errors import PrivacyParameterError
from privopt.mechanisms.risk.iteration import Output

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class StepOptions(TypedDict, total=False):
    """Options of mechanisms with noise on every step: their number, and the iterate to return.

    An option that is absent or None has the value of the theorem.
    """

    steps: int | None
    output: Output | None


def options_of(kind: type[Any]) -> dict[str, bool]:
    """Return the options of a mechanism by name, options of its base first, and whether each is required.

    Options are the arguments of ``_calibrated`` other than the target. A ``_calibrated`` that takes
    ``**options`` passes them to the ``_calibrated`` of its base, so the options of the base are included.
    """
    found: dict[str, bool] = {}
    for calibrated in (vars(base)["_calibrated"] for base in kind.__mro__ if "_calibrated" in vars(base)):
        arguments = list(inspect.signature(calibrated.__func__).parameters.values())[2:]
        found = {one.name: one.default is one.empty for one in arguments if one.kind in _NAMED} | found
        if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in arguments):
            break
    return found


def check_options(kind: Any, given: Collection[str]) -> None:
    """Refuse options that a mechanism does not have, and calls without the options that it requires.

    Raises:
        PrivacyParameterError: names the unknown options and the known ones, or the missing options.
    """
    known = options_of(kind)
    if wrong := [name for name in given if name not in known]:
        there = f"; it has {', '.join(known)}" if known else ""
        raise PrivacyParameterError(f"{kind.name} has no option {', '.join(wrong)}{there}")
    if missing := [name for name, required in known.items() if required and name not in given]:
        raise PrivacyParameterError(f"{kind.name} needs the public facts {', '.join(missing)}")

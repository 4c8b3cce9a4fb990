"""Names and libraries that are imported when they are first used: a start-up pays for what it uses."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from typing import Any


def lazily(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` (PEP 562) of a package that imports its names under TYPE_CHECKING only.

    What stands there, for type checkers and readers, is what is imported on demand.
    """
    homes = {
        alias.asname or alias.name: (str(found.module), alias.name)
        for block in ast.parse(inspect.getsource(sys.modules[package])).body
        if isinstance(block, ast.If)
        for found in block.body
        if isinstance(found, ast.ImportFrom)
        for alias in found.names
    }

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        return getattr(importlib.import_module(home), original)

    return load, lambda: sorted(homes)


class LazyModule:
    """A library that is imported when one of its names is first asked for; type checkers see the import."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self._name), name)
        setattr(self, name, value)
        return value

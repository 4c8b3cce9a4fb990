"""Runs tests on one mutant: its module is compiled from changed text, the tree stays as it is."""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

from tests.mutation.mutate import ROOT, Mutant


class _Loader(SourceFileLoader):
    """Compiles the mutant's text, and neither reads nor writes compiled files."""

    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(ROOT / mutant.path))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self.mutant.source(), self.path, "exec", dont_inherit=True)
        return code


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self.mutant = mutant
        self.module = "privopt." + mutant.path.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        loader = _Loader(fullname, self.mutant)
        return importlib.util.spec_from_file_location(fullname, ROOT / self.mutant.path, loader=loader)


def preload() -> None:
    """Import what tests need and mutants do not change: a fork of this process starts at once."""
    import hypothesis
    import joblib  # type: ignore[import-untyped]  # noqa: F401
    import numba  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pytest  # noqa: F401
    import rich.progress  # noqa: F401
    import scipy.integrate
    import scipy.optimize
    import scipy.sparse
    import scipy.stats  # noqa: F401
    import sklearn.base
    import sklearn.utils.estimator_checks  # noqa: F401
    import typer.testing  # noqa: F401

    # The same examples for every mutant, and no failing ones kept for later runs of the tests.
    hypothesis.settings.register_profile("mutants", derandomize=True, database=None)
    hypothesis.settings.load_profile("mutants")


def start(
    mutant: Mutant | None,
    tests: Sequence[str],
    plugin: object | None = None,
    then: Callable[[], None] = lambda: None,
) -> int:
    """Fork a process, in a group of its own, that runs tests on the mutant (None: on the code as it is).

    Returns its id; it ends with pytest's exit status, at the first failure unless the tests say otherwise.
    """
    import pytest

    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        os.chdir(ROOT)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1), os.dup2(quiet, 2)
        for name in [n for n in sys.modules if n.partition(".")[0] == "privopt"]:
            del sys.modules[name]  # imported before, where a test starts this
        if mutant is not None:
            sys.meta_path.insert(0, _Finder(mutant))
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
        code = int(pytest.main([*options, *tests], plugins=[plugin] if plugin else []))
        then()
    except BaseException:
        code = 3
    os._exit(code)

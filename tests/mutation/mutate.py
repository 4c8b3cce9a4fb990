"""Makes mutants: one small change of a module's source each, where a fault would be easy to make.

A mutant is named by what it says and where, not by a line number, so that a name outlives edits elsewhere:
file, enclosing function, the line as it stands, and what becomes of it.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Whether numba compiles nothing, so that mutants of kernels cost no more than others.
INTERPRETED = os.environ.get("NUMBA_DISABLE_JIT") == "1"
WINGS = ("problems", "oracles", "mechanisms", "experiments")

_COMPARISONS = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "+"),
    ast.Pow: ("**", "*"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
_NAMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "ceil": "floor",
    "floor": "ceil",
    "any": "all",
    "all": "any",
    "expm1": "exp",
    "log1p": "log",
    "argmax": "argmin",
    "argmin": "argmax",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one file.

    Attributes:
        path: the file, relative to the repository.
        start, end: the bytes that are replaced.
        new: what replaces them.
        name: what the mutant is called; see the module's docstring.
        line: where it is, for people.
    """

    path: str
    start: int
    end: int
    new: str
    name: str
    line: int

    @property
    def change(self) -> str:
        """The name without the file, which outlives a move of the function."""
        return self.name.partition("::")[2]

    @property
    def function(self) -> str | None:
        """The qualified name of the outermost function whose body is changed; None outside of all."""

        def search(nodes: Sequence[ast.stmt], scope: str) -> str | None:
            for node in nodes:
                if isinstance(node, ast.ClassDef) and (found := search(node.body, f"{scope}{node.name}.")):
                    return found
                if isinstance(node, ast.FunctionDef):
                    first, last = node.body[0], node.body[-1]
                    begin = starts[first.lineno - 1] + first.col_offset
                    if begin <= self.start < _end(last, starts):
                        return scope + node.name
            return None

        text = read(self.path)
        starts = line_starts(text)
        return search(ast.parse(text).body, "")

    @property
    def key(self) -> str:
        """Changes with the change and with the text of the function, class or constant that it is in."""
        begin, end = self._definition
        parts = (self.change, str(self.start - begin), self.new, read(self.path)[begin:end].decode())
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]

    @property
    def _definition(self) -> tuple[int, int]:
        """Where the innermost function, class or constant stands that it is in; the file outside of all."""
        text = read(self.path)
        spans = [s for every in _spans(self.path, text).values() for s in every if s[0] <= self.start < s[1]]
        return min(spans, key=lambda s: s[1] - s[0], default=(0, len(text)))

    def program(self) -> bytes:
        """The definition with the change, alone: faster to parse than the file."""
        begin, end = self._definition
        old = read(self.path)
        text = old[begin : self.start] + self.new.encode() + old[self.end : end]
        return b"class Scope:\n" + text if text[:1].isspace() else text

    def source(self) -> bytes:
        """The whole file with the change."""
        old = read(self.path)
        return old[: self.start] + self.new.encode() + old[self.end :]


def mutants(path: str) -> list[Mutant]:
    """All mutants of a module, in the order of its text."""
    source = read(path)
    finder = _Finder(path, source)
    finder.visit(ast.parse(source))
    return finder.named()


def located(where: str, old: str, new: str, name: str) -> Mutant:
    """Return a mutant of a definition, in whichever module it stands.

    Args:
        where: the qualified name of a function, a class or a constant of a module.
        old: a piece of its text; how it is broken into lines does not matter.
        new: what replaces it.

    Raises:
        ValueError: the piece does not occur there, or more than once.
    """
    pattern = re.compile(r"\s*".join(re.escape(w) for w in re.findall(r"\w+|[^\w\s]", old)).encode())
    found = []
    for path in definitions().get(where, ()):
        source = read(path)
        found += [
            (path, start + m.start(), start + m.end())
            for start, end in _spans(path, source)[where]
            for m in pattern.finditer(source[start:end])
        ]
    if len(found) != 1:
        places = ", ".join(dict.fromkeys(path for path, *_ in found)) or "no module"
        raise ValueError(f"{name}: {old!r} occurs {len(found)} times in {where} ({places})")
    path, start, end = found[0]
    return Mutant(path, start, end, new.strip(), name, read(path)[:start].count(b"\n") + 1)


@functools.cache
def modules() -> tuple[str, ...]:
    """The source files of all wings, relative to the repository."""
    every = sorted(path for wing in WINGS for path in (ROOT / wing).rglob("*.py"))
    return tuple(path.relative_to(ROOT).as_posix() for path in every)


@functools.cache
def definitions() -> dict[str, tuple[str, ...]]:
    """The modules that define a qualified name."""
    result: dict[str, tuple[str, ...]] = {}
    for path in modules():
        for where in _spans(path, read(path)):
            result[where] = (*result.get(where, ()), path)
    return result


@functools.cache
def _spans(path: str, source: bytes) -> dict[str, list[tuple[int, int]]]:
    """Positions of the functions, classes and constants of a module, as bytes: start and end."""
    result: dict[str, list[tuple[int, int]]] = {}
    starts = line_starts(source)

    def collect(nodes: Sequence[ast.stmt], scope: str) -> None:
        for node in nodes:
            if isinstance(node, ast.If | ast.Try):
                collect(node.body, scope)
            names = []
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign) and not scope:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            for name in names:
                first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
                span = starts[first - 1], _end(node, starts)
                result.setdefault(scope + name, []).append(span)
            if isinstance(node, ast.ClassDef):
                collect(node.body, f"{scope}{node.name}.")

    collect(ast.parse(source).body, "")
    return result


def _end(node: ast.stmt, starts: list[int]) -> int:
    """Return the offset at which a statement ends."""
    assert node.end_lineno is not None  # the parser sets both
    assert node.end_col_offset is not None
    return starts[node.end_lineno - 1] + node.end_col_offset


def line_starts(source: bytes) -> list[int]:
    """The first byte of every line."""
    starts = [0]
    for line in source.split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


@functools.cache
def read(path: str) -> bytes:
    """A module as it was when it was first read."""
    return (ROOT / path).read_bytes()


def digest(path: str) -> str:
    """Changes with a file."""
    return hashlib.sha256((ROOT / path).read_bytes()).hexdigest()[:16]


class _Finder(ast.NodeVisitor):
    """Collects changes; skips annotations, docstrings, decorators and messages of errors.

    Compiled functions are skipped unless numba is told to interpret them (NUMBA_DISABLE_JIT=1): compiling a
    mutant of each would take longer than everything else.
    """

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self.lines = source.split(b"\n")
        self.starts = line_starts(source)
        self.compiled = b"numba" in source and not INTERPRETED
        self.scope: list[str] = []
        self.found: list[tuple[int, int, str, str]] = []

    def named(self) -> list[Mutant]:
        """Without repetitions: the same change of equal lines of one function is told apart by a number."""
        seen: Counter[str] = Counter()
        result = []
        for start, end, new, scope in sorted(self.found):
            row = self.source[:start].count(b"\n")
            line = self.lines[row]
            column = start - self.starts[row]
            after = line[:column] + new.encode() + self.source[end : self.starts[row + 1] - 1]
            if end >= self.starts[row + 1]:  # a change over several lines
                after = line[:column] + new.encode()
            name = f"{self.path}::{scope}: {line.strip().decode()} -> {after.strip().decode()}"
            seen[name] += 1
            if seen[name] > 1:
                name += f" #{seen[name]}"
            result.append(Mutant(self.path, start, end, new, name, row + 1))
        return result

    def _offset(self, line: int, column: int) -> int:
        return self.starts[line - 1] + column

    def _span(self, node: ast.AST) -> tuple[int, int]:
        return (
            self._offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]
            self._offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def _add(self, start: int, end: int, new: str) -> None:
        self.found.append((start, end, new, ".".join(self.scope) or "module"))

    def _between(self, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """Replace an operator, which stands between two operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        at = self.source[start:end].find(old.encode())
        if at >= 0:
            self._add(start + at, start + at + len(old), new)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if self.compiled and any("jit" in ast.unparse(d) for d in node.decorator_list):
            return
        if node.name in ("__repr__", "__str__"):
            return
        self.scope.append(node.name)
        for value in (*node.args.defaults, *(d for d in node.args.kw_defaults if d)):
            self.visit(value)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.scope.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self.scope.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and not (self.compiled and not self.scope):
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        # A constant of a module with compiled functions may be part of them, and of their cache.
        if not (self.compiled and not self.scope):
            self.visit(node.value)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call) and self.scope:
            self._add(*self._span(node), "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(*self._span(node), "pass")

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        return

    def visit_If(self, node: ast.If) -> None:
        self._add(*self._span(node.test), "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._add(*self._span(node.test), "False")
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        left: ast.AST = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, *_COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _ARITHMETIC and not _is_text(node):
            self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if type(node.op) in _ARITHMETIC:
            old, new = _ARITHMETIC[type(node.op)]
            self._between(node.target, node.value, old + "=", new + "=")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in zip(node.values, node.values[1:], strict=False):
            self._between(left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            start, _ = self._span(node)
            self._add(start, start + (3 if isinstance(node.op, ast.Not) else 1), "")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        new = None
        if isinstance(node.value, bool):
            new = str(not node.value)
        elif isinstance(node.value, int):
            new = str(node.value + 1)
        elif isinstance(node.value, float):
            new = repr(node.value * 2) if node.value else "1.0"
        if new is not None:
            self._add(*self._span(node), new)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func
        word = name.attr if isinstance(name, ast.Attribute) else getattr(name, "id", "")
        if word in _NAMES:
            _, end = self._span(name)
            self._add(end - len(word), end, _NAMES[word])
        self.generic_visit(node)


def _is_text(node: ast.BinOp) -> bool:
    sides: Iterator[ast.AST] = iter((node.left, node.right))
    return any(isinstance(s, ast.JoinedStr) or isinstance(getattr(s, "value", 0), str) for s in sides)

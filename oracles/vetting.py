"""Record of outside code that passed a conformance kit or an audit, for the claims that depend on this code.

Passes are stored in a file of the user, with the hash of the source files of the code. Code that has changed
since, or whose source cannot be read, counts as not checked. Passing is evidence, not a proof.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from privopt.problems.files import write_atomically


@dataclass(frozen=True)
class Standing:
    """Result of privopt's checks of outside code, in words for a privacy claim.

    Attributes:
        passed: whether the code in its present state passed its check: the audit for a mechanism, a
            conformance kit for other code.
        words: the statement that is added to a privacy claim.
    """

    passed: bool
    words: str


@dataclass(frozen=True)
class _Passed:
    digest: str
    kit: str
    when: str


def is_own(code: object) -> bool:
    """Return whether a class or function is defined in this package."""
    return str(getattr(code, "__module__", "")).partition(".")[0] == "privopt"


def outside_code(value: Any) -> Any:
    """Return the class of the object, or of what it wraps as ``inner``, that is outside code.

    If neither is outside code, return the class of the object.
    """
    wrapped = value
    while wrapped is not None:
        if not is_own(type(wrapped)):
            return type(wrapped)
        wrapped = getattr(wrapped, "inner", None)
    return type(value)


def standing(code: Any, what: str) -> Standing | None:
    """Return the standing of a class or function; None if it belongs to this package.

    ``what`` is the role of the code, such as "oracle" or "mechanism"; the statement begins with it.
    Mechanisms are checked by the audit, other code by a conformance kit.
    """
    if is_own(code):
        return None
    check = _check_of(what)
    name, found = _name(code), _remembered().get(_key(code, what))
    if found is None or found.get("digest") != digest(code):
        changed = f"not checked by the {check}" + (", it has changed since" if found is not None else "")
        return Standing(False, f"{what} {name}: {changed}")
    return Standing(
        True,
        f"{what} {name}: passed the {check} of privopt {found['kit']} on {found['when']}, sha256 "
        f"{found['digest'][:12]}",
    )


def remember(code: type, what: str = "oracle") -> Standing:
    """Record that a class passed the check of its role, in its present state. Call it only after that check.

    Raises:
        OSError: the file cannot be written.
        ValueError: the source of the class cannot be read.
    """
    found = digest(code)
    if found is None:
        raise ValueError(
            f"the source files of {_name(code)} cannot be read, so nothing can be remembered of it"
        )
    entry = _Passed(found, version("privopt"), datetime.now(UTC).date().isoformat())
    path = state_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(_remembered() | {_key(code, what): asdict(entry)}, indent=1) + "\n")
    known = standing(code, what)
    assert known is not None
    return known


def _check_of(what: str) -> str:
    return "audit" if what == "mechanism" else "kit"


def _key(code: Any, what: str) -> str:
    """Return the key in the file of checks; it tells a pass of a kit from a pass of the audit."""
    return _name(code) if _check_of(what) == "kit" else f"{_name(code)} ({_check_of(what)})"


def digest(code: Any) -> str | None:
    """Return the SHA-256 of the source files of a class or function; None if they cannot be read.

    For a class the source files of its bases are included, except for bases of this package and of Python.
    If a module is in a package, all modules of the outermost package are included.
    """
    classes = code.__mro__ if isinstance(code, type) else (code,)
    files: set[Path] = set()
    for one in classes:
        top = str(getattr(one, "__module__", "")).partition(".")[0]
        if top in ("privopt", "builtins") or top in sys.stdlib_module_names - {"__main__"}:
            continue
        module = sys.modules.get(top)
        folders = [Path(p) for p in getattr(module, "__path__", ())]
        if folders:
            files.update(f for folder in folders for f in folder.rglob("*.py"))
            continue
        try:
            files.add(Path(inspect.getfile(one)))
        except (OSError, TypeError):
            return None
    try:
        texts = sorted((file.name, file.read_bytes()) for file in files)
    except OSError:
        return None
    total = hashlib.sha256()
    for name, text in texts:
        total.update(hashlib.sha256(name.encode()).digest() + hashlib.sha256(text).digest())
    return total.hexdigest() if texts else None


def state_file() -> Path:
    """Return the path of the file with the checks that passed."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "privopt" / "checked.json"


def _remembered() -> dict[str, dict[str, str]]:
    """Return the checks that passed, by name; empty if the file is missing or invalid."""
    try:
        found = json.loads(state_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, RuntimeError):
        return {}
    if not isinstance(found, dict):
        return {}
    wanted = {"digest", "kit", "when"}
    return {k: v for k, v in found.items() if isinstance(v, dict) and set(v) == wanted}


def _name(code: Any) -> str:
    return f"{getattr(code, '__module__', '?')}:{getattr(code, '__qualname__', type(code).__name__)}"

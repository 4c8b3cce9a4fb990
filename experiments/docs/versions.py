"""Build the site of every release and of the last commit: `make docs-versions`.

A release is a git tag `v1.2.3`; its site is kept and not built again. The last commit is built every time: as
`main`, or under the number in its pyproject.toml as long as no release has a tag. The index leads to the
newest release.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MENU = Path(__file__).with_name("versions.js")
PACKAGES = ("problems", "oracles", "mechanisms", "experiments")
INDEX = """<!doctype html><html lang="en"><meta charset="utf-8"><title>privopt</title>
<meta http-equiv="refresh" content="0; url={newest}/index.html">
<a href="{newest}/index.html">privopt {newest}</a></html>
"""


def versions(root: Path) -> dict[str, str]:
    """Return what is built, newest release first: folder -> commit or tag."""
    tags = [tag for tag in _git(root, "tag").split() if re.fullmatch(r"v\d+(\.\d+)*", tag)]
    tags.sort(key=lambda tag: [int(part) for part in tag[1:].split(".")], reverse=True)
    project = tomllib.loads(_git(root, "show", "HEAD:pyproject.toml"))["project"]
    return {tag[1:]: tag for tag in tags} | {"main" if tags else project["version"]: "HEAD"}


def build(root: Path, commit: str, name: str, made: Path) -> None:
    """Build the site of a commit from its own files: its examples run its code, its reference shows it."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        files = subprocess.run(["git", "-C", root, "archive", commit], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(files)) as archive:
            archive.extractall(source, filter="data")
        packages = source / ".packages" / "privopt"
        packages.mkdir(parents=True)
        for package in PACKAGES:
            (packages / package).symlink_to(source / package)
        words = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-t", "versions"]
        words += ["-D", f"version={name}", "-D", f"release={name}"]
        words += [str(source / "experiments" / "docs"), str(Path(folder) / "html")]
        subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": str(packages.parent)})
        shutil.rmtree(made, ignore_errors=True)  # only now: a failed build leaves the site that stood
        shutil.move(Path(folder) / "html", made)


def build_all(root: Path, output: Path) -> None:
    """Build what is new, and write the index and the menu that all versions show."""
    output.mkdir(parents=True, exist_ok=True)
    wanted = versions(root)
    for name, commit in wanted.items():
        if commit == "HEAD" or not (output / name).exists():
            print(f"building {name}", flush=True)
            build(root, commit, name, output / name)
    (output / "index.html").write_text(INDEX.format(newest=next(iter(wanted))), "utf-8")
    pages = [[name, _pages(output / name)] for name in wanted]
    (output / "versions.js").write_text(
        f"const versions = {json.dumps(pages)};\n{MENU.read_text('utf-8')}", "utf-8"
    )


def _pages(made: Path) -> list[str]:
    return sorted(page.relative_to(made).as_posix() for page in made.rglob("*.html"))


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(root), *words], check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    build_all(ROOT, Path(sys.argv[1]))

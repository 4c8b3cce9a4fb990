"""Every Python block of the README and of CONTRIBUTING runs as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"
CONTRIBUTING = README.parent / "CONTRIBUTING.md"
EXAMPLES = {
    page: re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in (README, CONTRIBUTING)
}
BLOCKS = [block for blocks in EXAMPLES.values() for block in blocks]


def test_the_pages_have_their_examples() -> None:
    assert len(EXAMPLES[README]) >= 2
    assert EXAMPLES[CONTRIBUTING]


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_readme_block_runs(number: int, tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", BLOCKS[number]],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip()


PAGES = [
    README,
    CONTRIBUTING,
    *sorted((README.parent / "experiments" / "docs").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_have_no_placeholder_and_no_dead_link(page: Path) -> None:
    text = page.read_text()
    assert not re.findall(r"@[A-Z]+@", text)
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("http") or (page.parent / link).exists(), link

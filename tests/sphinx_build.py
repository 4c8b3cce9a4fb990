"""Sphinx, as the tests build the site: `python -m tests.sphinx_build ARGUMENTS`, with less repeated work.

The pages say the same, but for the list of all pages beside each: that of a folder's first page is shown
beside all others of the folder, too, which takes a quarter of the time less.
"""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

import furo
from sphinx.cmd.build import main
from sphinx.search.en import SearchEnglish

lists: dict[str, str] = {}
compute = furo._compute_navigation_tree


def of_the_folder(context: dict[str, Any]) -> str:
    """The list of pages, whose links depend on the folder."""
    folder = context["pagename"].rpartition("/")[0]
    if folder not in lists:
        lists[folder] = compute(context)
    return lists[folder]


if __name__ == "__main__":
    furo._compute_navigation_tree = of_the_folder
    SearchEnglish.stem = functools.cache(SearchEnglish.stem)  # type: ignore[method-assign]
    # To look for garbage among the nodes of all pages takes a quarter of the time; the gallery asks for it.
    gc.set_threshold(100_000, 20, 100)
    gc.collect = lambda generation=2: 0  # type: ignore[assignment]
    sys.exit(main(sys.argv[1:]))

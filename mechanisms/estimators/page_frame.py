"""The common frame of printable pages: a title, how to use the model, its sections, the guarantee."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

# A line of the page that is filled in by hand, on paper.
FILLED = '\n<p class="filled"><span>Name</span><span>Date of birth</span><span>Date</span></p>'


def framed(
    title: str,
    how: str,
    body: str,
    promises: Sequence[str],
    spend: str,
    *,
    filled: bool = True,
    script: str = "",
) -> str:
    """Return the whole page.

    Args:
        title, promises, spend: plain texts.
        how, body: HTML that says how to use the model, and HTML of the sections.
        filled: whether the page has a line for a name and dates.
        script: the name of the script of the page, a file next to this module.
    """
    files = resources.files("privopt.mechanisms.estimators")

    def read(name: str) -> str:
        return (files / name).read_text("utf-8")

    return Template(read("page.html")).substitute(
        title=escape(title),
        style=read("page.css"),
        how=how,
        filled=FILLED if filled else "",
        body=body,
        promises="\n".join(f"<li>{escape(line)}</li>" for line in promises),
        spend=escape(spend),
        script=f"\n<script>\n{read(script)}</script>" if script else "",
    )

"""One self-contained HTML page: text, tables and pictures, nothing loaded from anywhere."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

import pandas as pd
from matplotlib.figure import Figure

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; color: #222 }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #ddd; text-align: right }
th:first-child, td:first-child { text-align: left }
svg { max-width: 100%; height: auto }
"""


def page(title: str, sections: Sequence[tuple[str, Sequence[str | pd.DataFrame | Figure]]]) -> str:
    """The whole page.

    Args:
        title: its heading.
        sections: headings with what stands below each: paragraphs (plain text), tables and figures.
    """
    body = [f"<h1>{html.escape(title)}</h1>"]
    for heading, parts in sections:
        body.append(f"<h2>{html.escape(heading)}</h2>")
        body.extend(_render(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _render(part: str | pd.DataFrame | Figure) -> str:
    if isinstance(part, pd.DataFrame):
        return str(part.to_html(index=False, border=0, escape=True, float_format=lambda x: f"{x:.4g}"))
    if isinstance(part, Figure):
        buffer = io.StringIO()
        part.savefig(buffer, format="svg")
        svg = buffer.getvalue()
        return svg[svg.index("<svg") :]
    return f"<p>{html.escape(part)}</p>"

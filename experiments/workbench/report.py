"""Self-contained HTML reports of text, tables and figures; a page loads no other resource."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from privopt.experiments.workbench.drawing import Figure

_STYLE = """
body { font: 1rem/1.55 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
       color: #222; background: #fff }
h1, h2 { line-height: 1.25 }
h2 { margin-top: 2.5rem; border-top: 1px solid #ddd; padding-top: 1rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #ddd; text-align: right;
         vertical-align: top; white-space: nowrap }
th { border-bottom: 2px solid #888 }
.words { text-align: left; white-space: normal; min-width: 6rem }
figure { margin: 1.5rem 0 }
/* a table is as wide as the screen allows before it scrolls; its caption does not widen it */
.table { width: max-content; min-width: 100%; max-width: min(72rem, 100vw - 2rem);
         position: relative; left: 50%; transform: translateX(-50%) }
.table figcaption { width: 0; min-width: 100% }
img { width: 100%; min-width: 34rem; height: auto; display: block }  /* a phone scrolls rather than shrinks */
figcaption { color: #444; font-size: .9rem; padding: .5rem 0 }
pre { overflow-x: auto; background: #f5f5f5; padding: .75rem; font-size: .85rem }
"""


@dataclass(frozen=True)
class Picture:
    """A figure with its caption: a description and a conclusion."""

    figure: Figure
    caption: str


@dataclass(frozen=True)
class Listing:
    """A table with its caption; text columns are aligned to the left."""

    frame: pd.DataFrame
    caption: str


Part = str | Picture | Listing


def page(title: str, sections: Sequence[tuple[str, Sequence[Part]]]) -> str:
    """Write the page.

    Args:
        title: the heading of the page.
        sections: headings with their content: paragraphs (plain text; one that starts with a space is
            preformatted), tables and figures. Parts that scroll can have the focus of the keyboard.
    """
    body = [f"<h1>{html.escape(title)}</h1>"]
    for heading, parts in sections:
        body.append(f"<h2>{html.escape(heading)}</h2>")
        body.extend(_render(part) for part in parts)
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style>"
    )
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n'
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def _render(part: Part) -> str:
    if isinstance(part, Listing):
        return _table(part)
    if isinstance(part, Picture):
        buffer = io.BytesIO()
        part.figure.savefig(buffer, format="svg", metadata={"Date": None})
        data = base64.b64encode(buffer.getvalue()).decode()
        caption = html.escape(part.caption)
        source = f"data:image/svg+xml;base64,{data}"
        image = f'<div class="wide" tabindex="0"><img alt="{caption}" src="{source}"></div>'
        return f"<figure>{image}<figcaption>{caption}</figcaption></figure>"
    if part.startswith(" "):
        return f'<pre tabindex="0">{html.escape(part)}</pre>'
    return f"<p>{html.escape(part)}</p>"


def _table(part: Listing) -> str:
    words = [not pd.api.types.is_numeric_dtype(kind) for kind in part.frame.dtypes]

    def row(tag: str, cells: Sequence[object]) -> str:
        classes = (' class="words"' if w else "" for w in words)
        inner = (f"<{tag}{c}>{_text(v)}</{tag}>" for v, c in zip(cells, classes, strict=True))
        return f"<tr>{''.join(inner)}</tr>"

    head = row("th", list(part.frame.columns))
    body = "\n".join(row("td", list(cells)) for cells in part.frame.itertuples(index=False))
    caption = f"<figcaption>{html.escape(part.caption)}</figcaption>"
    table = f"<table><thead>{head}</thead><tbody>\n{body}\n</tbody></table>"
    return f'<figure class="table"><div class="wide" tabindex="0">{table}</div>{caption}</figure>'


def _text(value: object) -> str:
    return html.escape(f"{value:.4g}" if isinstance(value, float) else str(value))

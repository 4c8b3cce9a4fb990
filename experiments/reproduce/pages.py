"""Output of reproductions: pictures, a page per figure, an index, and one report of all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from privopt.experiments.reproduce.interface import Reproduction, Verdict, stem
from privopt.experiments.reproduce.reasons import explained, summary
from privopt.experiments.reproduce.tables import apart
from privopt.experiments.workbench.drawing import Figure
from privopt.experiments.workbench.figures import save
from privopt.experiments.workbench.pages import markdown_table
from privopt.experiments.workbench.peers import versions
from privopt.experiments.workbench.report import Listing, Part, Picture, page
from privopt.experiments.workbench.resumable import machine, markdown
from privopt.problems.files import write_atomically

_NOT_PRIVATE = (
    "The data are public or synthetic, and the noise is seeded, so that runs can be repeated exactly: "
    "nothing here is private. Accuracies, gradients and times are computed from the records without noise."
)


def write(
    figures: Sequence[Reproduction], folder: Path, quick: bool, failures: Mapping[str, str]
) -> tuple[Path, Path]:
    """Write pictures and pages of complete figures; return the paths of the report and of the contents."""
    sections, index, links = [], [], []
    judged: list[Verdict] = []
    for figure in figures:
        rows = figure.study(quick).kept(folder).frame
        name = stem(figure.name, quick)
        picture, table = figure.draw(rows), figure.table(rows)
        verdicts = explained(figure.name, figure.verdicts(rows))
        judged += verdicts
        save(picture, folder / f"{name}.png")
        picture.savefig(folder / f"{name}.svg", metadata={"Date": None})
        write_atomically(folder / f"{name}.md", _markdown(figure, name, quick, table, verdicts))
        links.append(f"- [{figure.title}]({name}.md)")
        index += [(figure.name, v.agreement.value, v.claim) for v in verdicts]
        sections.append((figure.title, _parts(figure, quick, picture, table, verdicts)))
    title = "Reproduced figures of the papers" + (", quick runs" if quick else "")
    overview = pd.DataFrame(index, columns=["figure", "here", "statement"])
    what = [_NOT_PRIVATE, f"Made by `privopt reproduce{' --quick' if quick else ''}` on {_where()}."]
    what += [f"Not measured: {where}: {why}" for where, why in failures.items()]
    report = folder / ("report-quick.html" if quick else "report.html")
    head: list[Part] = [
        *(text.replace("`", "") for text in (*what, summary(judged))),
        Listing(
            overview,
            "Statements of the papers and some of our own, and whether the measurements agree.",
        ),
    ]
    write_atomically(report, page(title, [("In short", head), *sections]))
    contents = folder / ("figures-quick.md" if quick else "figures.md")
    counted = f"<!-- count -->\n{summary(judged)}\n<!-- end -->"
    text = "\n\n".join([f"# {title}", *what, counted, markdown_table(overview), "\n".join(links)])
    write_atomically(contents, text + "\n")
    return report, contents


def _parts(
    figure: Reproduction, quick: bool, picture: Figure, table: pd.DataFrame, verdicts: Sequence[Verdict]
) -> list[Part]:
    return [
        f"The paper ({figure.paper}): {figure.shows}",
        f"Here: {figure.setting(quick)}",
        *(f"{v.agreement.value.capitalize()}: {v.claim}. {v.words}{_because(v)}" for v in verdicts),
        Picture(picture, figure.caption),
        *(Listing(part, "Mean ± standard deviation over runs.") for part in apart(table)),
    ]


def _markdown(
    figure: Reproduction, name: str, quick: bool, table: pd.DataFrame, verdicts: Sequence[Verdict]
) -> str:
    judged = "\n".join(
        f"- **{v.agreement.value.capitalize()}**: {v.claim}. {v.words}{_because(v)}" for v in verdicts
    )
    tables = "\n\n".join(markdown(part) for part in apart(table))
    results = stem(figure.source, quick) + ".csv"
    command = f"privopt reproduce {figure.name}{' --quick' if quick else ''}"
    return (
        f"# {figure.title}\n\nMade by `{command}`. {_NOT_PRIVATE}\n\n**The paper** ({figure.paper}). "
        f"{figure.shows}\n\n**Here.** "
        f"{figure.setting(quick)}\n\n![{figure.figure}]({name}.png)\n\n*{figure.caption}*\n\n## Do we "
        f"agree?\n\n{judged}\n\n## Numbers\n\n{tables}\n\nEvery run: [{results}]({results}).\n"
    )


def _because(verdict: Verdict) -> str:
    return f" *{verdict.reason}*" if verdict.reason else ""


def _where() -> str:
    names = ("diffprivlib", "opacus", "torch")
    found = versions(*names)  # of Python, too, which the machine names already
    return "; ".join([machine(), *(f"{n} {found[n]}" for n in names if found[n] != "not installed")])

"""The site, by Sphinx: `make docs`."""

import re
import warnings
from importlib.metadata import version as installed

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_gallery.sorting import ExplicitOrder
from typer import Context
from typer.cli import get_docs_for_click

from privopt.experiments.cli.main import COMMANDS, load

project = "privopt"
author = copyright = "the privopt contributors"
release = version = installed("privopt")


def without_place(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    """Show a warning of an example without the place in the files of this machine."""
    return f"{category.__name__}: {message}\n"


warnings.formatwarning = without_place

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
EXAMPLES = (
    *("income", "credit", "marketing", "churn", "mushrooms", "forest"),
    *("readmission", "loan", "hours", "disease", "wide", "screening", "team"),
)
# Every example runs in every build, so that none shows what it no longer does.
sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": ExplicitOrder([f"{name}.py" for name in EXAMPLES]),
    "image_scrapers": (),
    "reset_modules": (),
    "min_reported_time": 0,
    "run_stale_examples": True,
    "write_computation_times": False,  # its page loads scripts from elsewhere; examples say their times
    "show_memory": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
}
exclude_patterns = ["examples"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
napoleon_use_ivar = True
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["phones.js", "keyboard.js"]
html_title = "privopt"
html_show_sphinx = False
smartquotes = False  # options begin with two hyphens

autodoc_typehints = "none"  # signatures have them
autodoc_member_order = "bysource"


class Commands(SphinxDirective):
    """Every command of the command line with its options, as `--help` has them."""

    def run(self) -> list[nodes.Node]:
        text = ""
        for name in COMMANDS:
            command = load(name)
            context = Context(command, info_name=name)
            text += get_docs_for_click(obj=command, ctx=context, indent=1, name=name, call_prefix="privopt")
        text = re.sub(r"\* `--(install|show)-completion`.*\n", "", text)
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def literal_bars(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Mark |x| in a docstring as an absolute value: reStructuredText takes it for a substitution."""
    lines[:] = ["``".join(_barred(line.split("``"))) for line in lines]


def _barred(parts: list[str]) -> list[str]:
    return [part.replace("|", r"\|") if k % 2 == 0 else part for k, part in enumerate(parts)]


def untyped(app: Sphinx, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from reading "The width: a number" of a property as a type and a description."""
    if what in ("property", "attribute"):
        lines[:0] = ["..", ""]  # an empty comment: blank lines are skipped before it looks


def inherited(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out members that scikit-learn brings along: they have their pages there."""
    return True if (getattr(thing, "__module__", "") or "").startswith("sklearn.") else None


def setup(app: Sphinx) -> None:
    """Connect them."""
    if app.tags.has(
        "versions"
    ):  # set by versions.py, which writes this script above the sites of all versions
        app.add_js_file("../../versions.js")
    app.add_directive("commands", Commands)
    app.connect("autodoc-process-docstring", untyped, priority=400)  # before napoleon
    app.connect("autodoc-process-docstring", literal_bars)
    app.connect("autodoc-skip-member", inherited)

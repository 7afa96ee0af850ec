"""How Sphinx builds the site: ``make docs``, offline, into build/site.

Links to the repository and the button "Edit" need its address, which workflows of GitHub or ``pyproject.toml`` tell::

    [project.urls]
    Repository = "https://..."
"""

import os
import posixpath
import re
import tomllib
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

import click
from sphinx_gallery.sorting import FileNameSortKey
from typer.cli import get_docs_for_click  # the command `typer utils docs`
from typer.main import get_command

from fairdro.cli import app as command_line

project, author, copyright = "fairdro", "The fairdro developers", "The fairdro developers"  # noqa: A001 - Sphinx's name
release = version = version_of("fairdro")
ROOT = Path(__file__).parents[1]
REPOSITORY = (
    tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"].get("urls", {}).get("Repository")
)
if REPOSITORY is None and "GITHUB_REPOSITORY" in os.environ:
    REPOSITORY = f"{os.environ['GITHUB_SERVER_URL']}/{os.environ['GITHUB_REPOSITORY']}"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
numpydoc_show_class_members = False
autosummary_generate = True
autodoc_typehints = "none"
exclude_patterns = [
    "auto_examples/*.ipynb",
    "auto_examples/*.zip",
    "sg_execution_times.rst",
    "auto_examples/sg_execution_times.rst",
]  # the last one of earlier builds
suppress_warnings = ["config.cache"]

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/(?!dask_head)\w+\.py$",  # which starts processes: shown, and run by the tests
    "within_subsection_order": FileNameSortKey,
    "download_all_examples": False,
    "show_memory": False,
    "image_srcset": ["2x"],  # sharp on dense screens
    "write_computation_times": False,  # that page loads scripts from elsewhere
    "remove_config_comments": True,
    "abort_on_example_error": True,
    "parallel": 2,
}

html_theme = "pydata_sphinx_theme"
templates_path = ["_templates"]
smartquotes_action = "qe"  # two dashes stay: they begin the options of commands
html_title = f"fairdro {release}"
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_theme_options = {
    "logo": {"text": html_title},
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "show_prev_next": False,
    "use_edit_page_button": REPOSITORY is not None,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
if REPOSITORY is not None:
    html_theme_options["icon_links"] = [{"name": "Repository", "url": REPOSITORY, "icon": "fa-solid fa-code-branch"}]
    html_context["edit_page_url_template"] = REPOSITORY + "/edit/main/docs/{{ file_name }}"
html_show_sourcelink = False


def setup(app: Any) -> None:
    """Write the page on the command line before Sphinx looks for pages, and let links lead to what the site has."""
    app.connect("config-inited", lambda *_: _write_command_line())
    app.connect("source-read", _link_the_gallery)
    app.connect("autodoc-process-docstring", _drop_labels_of_others)
    app.connect("viewcode-follow-imported", _stay_at_aliases)
    app.connect("html-page-context", _lead_back_from_sources)
    app.connect("html-page-context", _edit_only_what_is_written_by_hand)


def _write_command_line() -> None:
    command = get_command(command_line)
    text = get_docs_for_click(obj=command, ctx=click.Context(command), name="fairdro", title="The command line")
    (Path(__file__).parent / "reference" / "command-line.md").write_text(text, encoding="utf-8")


def _link_the_gallery(app: Any, page: str, source: list[str]) -> None:
    """Pages link to ``../examples/name.py``, for those who read them in the repository; on the site that is a page."""

    def lead(link: re.Match[str]) -> str:
        found = f"auto_examples/{link[1] or 'index'}"
        if found not in app.env.found_docs:
            return link[0]
        return f"]({posixpath.relpath(found, posixpath.dirname(page) or '.')}.rst)"

    source[0] = re.sub(r"\]\((?:\.\./)+examples(?:/(\w+)\.py)?\)", lead, source[0])


def _drop_labels_of_others(app: Any, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """What is inherited from scikit-learn refers to labels of its own site."""
    if getattr(found, "__module__", "").startswith("sklearn."):
        lines[:] = [re.sub(r":ref:`([^<`]+?)\s*<[^`]*>`", r"\1", line) for line in lines]


def _stay_at_aliases(app: Any, module: str, name: str) -> str | None:
    """A state is a dict, but not of the module builtins."""
    return module if name == "State" else None


def _lead_back_from_sources(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """What a module defines may be listed under another, whose name viewcode takes for all of the module or for none."""
    if page.startswith("_modules/"):
        to_itself = r"/generated/((?:\w+\.)*(\w+))\.html#(?:\w+\.)*\2(?=[.\"])"
        context["body"] = re.sub(to_itself, r"/generated/\1.html#\1", context["body"])


def _edit_only_what_is_written_by_hand(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    if page.startswith(("auto_examples/", "reference/generated/", "reference/command-line")):
        context["theme_use_edit_page_button"] = False

"""How Sphinx builds the site: ``make docs``, offline, into build/site."""

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
exclude_patterns = ["auto_examples/*.ipynb", "auto_examples/*.zip"]
suppress_warnings = ["config.cache", "myst.xref_missing", "ref.ref"]  # files of the repository, labels of scikit-learn

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"dask_head\.py$",  # which starts processes
    "within_subsection_order": FileNameSortKey,
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "fairdro"
html_theme_options = {
    "navbar_end": ["theme-switcher", "navbar-icon-links"],
    "show_prev_next": False,
    "use_edit_page_button": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {
    "github_user": "fairdro",
    "github_repo": "fairdro",
    "github_version": "main",
    "doc_path": "docs",
    "default_mode": "auto",
}
html_show_sourcelink = False


def setup(app: Any) -> None:
    """Write the page on the command line before Sphinx looks for pages."""
    app.connect("config-inited", lambda *_: _write_command_line())


def _write_command_line() -> None:
    command = get_command(command_line)
    text = get_docs_for_click(obj=command, ctx=click.Context(command), name="fairdro", title="The command line")
    (Path(__file__).parent / "reference" / "command-line.md").write_text(text, encoding="utf-8")

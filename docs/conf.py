"""The documentation site: `make docs` writes it to build/site."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import drolearn

project = "drolearn"
author = "The drolearn developers"
version = release = drolearn.__version__
copyright = "2026, the drolearn developers"  # noqa: A001 (the name that Sphinx reads)

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["README.md"]  # the index for readers of the repository
smartquotes = False  # φ' is a derivative

# Pages are Markdown that is also readable in the repository: formulas are plain text.
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
autodoc_typehints = "none"  # docstrings have the types
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = "drolearn"
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_theme_options = {
    "show_prev_next": False,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

sphinx_gallery_conf = {
    "examples_dirs": "../examples/gallery",
    "gallery_dirs": "gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "show_memory": False,
    "download_all_examples": False,
    "remove_config_comments": True,
    "plot_gallery": True,
}

# Examples are shown as users see them: without warnings about how they are run.
warnings.filterwarnings("ignore", message="FigureCanvasAgg is non-interactive")


def skip_members(_app: Any, kind: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Leave out what classes inherit from scikit-learn and PyTorch: they document it themselves.

    What a module holds has pages of its own.
    """
    of = getattr(member, "fget", None) or getattr(member, "func", None) or member
    module = getattr(of, "__module__", None) or "drolearn"
    return skip or kind == "module" or not module.startswith("drolearn")


def escape(_app: Any, _kind: str, _name: str, _item: Any, _options: Any, lines: list[str]) -> None:
    """Escape what is plain text in docstrings, and markup in reStructuredText.

    |r| is an absolute value, not a substitution, and gap_ is an attribute, not a link.
    """
    for k, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            line = re.sub(r"\|([^|`]+)\|", r"\\|\1\\|", line)
            lines[k] = re.sub(r"(?<![\w`*\\])(\w+)_(?=[\s,.;:)]|$)", r"\1\\_", line)


def link_files(app: Any, _name: str, source: list[str]) -> None:
    """Files of the repository are downloads on the site, and names of pages their titles.

    Doctest needs an empty line before the end of a block; readers do not.
    """

    def download(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = Path(app.srcdir, target)
        return f"{{download}}`{text} <{target}>`" if path.is_file() else text

    source[0] = re.sub(r"(?<!!)\[([^]]+)\]\((\.\./[^)#]+)\)", download, source[0])
    source[0] = re.sub(r"\[[\w-]+\.md\](?=\([\w-]+\.md[)#])", "[]", source[0])
    source[0] = re.sub(r"\n\n```(?=\n|$)", "\n```", source[0])


def setup(app: Any) -> None:
    """Connect the functions above; numpydoc runs at priority 500."""
    app.connect("autodoc-skip-member", skip_members)
    app.connect("autodoc-process-docstring", escape, priority=400)
    app.connect("source-read", link_files)

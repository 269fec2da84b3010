"""Sphinx: pages in Markdown (MyST), the Python reference from docstrings (numpydoc), the theme of numpy and pvlib.

make docs builds into out/site; warnings are errors. Nothing is fetched while building or reading.
"""

import re
from pathlib import Path
from typing import Any

from numpydoc.xref import DEFAULT_LINKS
from sphinx.application import Sphinx

import atdm

PUBLIC = re.findall(r"^   (atdm\.\S+)$", Path(__file__).with_name("api.md").read_text("utf-8"), re.M)

project = "atdm"
author = "The atdm developers"
copyright = "The atdm developers, Apache-2.0"
version = release = atdm.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
templates_path = ["_templates"]
exclude_patterns = ["_templates"]
default_role = "py:obj"  # `name` in a docstring is a link where the name is public
smartquotes = False  # quotes here are those of code
highlight_language = "none"  # indented blocks are commands, equations and files; Python says so

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links such as spec.md#7-threat-model, as on a Git host

autosummary_generate = True  # one page per name of api.md, in docs/generated
autosummary_filename_map = {  # fit and Fit are one file name on some systems
    name: f"{name}-class" for name in PUBLIC if name.rpartition(".")[2][0].isupper()
}
autodoc_typehints = "none"  # the docstrings say types in words, with units
autodoc_member_order = "bysource"
numpydoc_show_class_members = False  # the pages have them already, with their docstrings
numpydoc_xref_param_type = True  # our own types become links; others would need their projects' indexes
numpydoc_xref_ignore = "all"
numpydoc_xref_aliases = {name: f":obj:`{name}`" for name in DEFAULT_LINKS} | {
    name.rpartition(".")[2]: name for name in PUBLIC
}

html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_title = "atdm"
html_show_sourcelink = False
html_sidebars = {"index": [], "architecture": []}  # they have no pages below them
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
}


def _no_signature_of_results(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """A class that atdm hands out is read, not made: its page begins with its attributes."""
    made = "Parameters\n" in (getattr(thing, "__doc__", None) or "")
    return None if what != "class" or made else ("", None)


def setup(app: Sphinx) -> None:
    app.connect("autodoc-process-signature", _no_signature_of_results)

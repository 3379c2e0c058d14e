"""Configuration of the site: `make site`."""

from __future__ import annotations

import pathlib
import sys
import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

project = "pyistiod"
release = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"pyistiod {release}"
myst_heading_anchors = 3
# Pages link to files of the repository, which are not part of the site.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]

add_module_names = False
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "py:obj"  # of `names` in docstrings
python_maximum_signature_line_length = 100


def omit_field_numbers(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Omit the docstrings that Python gives to the fields of a NamedTuple."""
    if lines and lines[0].startswith("Alias for field number"):
        lines.clear()


def setup(app: Sphinx) -> None:
    """Register the hooks of the site."""
    app.connect("autodoc-process-docstring", omit_field_numbers)

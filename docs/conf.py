"""How Sphinx makes the site of these pages: `make site`."""

project = "pyistiod"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "pyistiod"
myst_heading_anchors = 3
# Pages name files of the repository, which are no part of the site.
suppress_warnings = ["myst.xref_missing", "misc.highlighting_failure"]

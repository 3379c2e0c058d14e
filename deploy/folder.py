"""Where charts and profiles are: in this package, or in a folder of the user's."""

from __future__ import annotations

import pathlib
from importlib.resources import files
from importlib.resources.abc import Traversable


def installation_folder(path: str = "") -> Traversable:
    """Returns the folder with `charts` and `profiles`; this package's own where no path is given."""
    return pathlib.Path(path) if path else files(__package__)

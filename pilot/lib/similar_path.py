"""Suggestions for paths that do not exist."""

from __future__ import annotations

import os
from itertools import islice

from pilot.lib.suggestion import closest
from pilot.lib.text import printable_path

_MAX_READ = 1000
"""Maximum number of entries of a folder that are compared with a name."""


def suggest_path(path: str) -> str:
    """Return a question that suggests the most similar name in the folder of a path, or "" if the path exists or no
    name is similar. Suffixes are not compared."""
    folder, name = os.path.split(path.rstrip(os.sep))
    if not name or os.path.lexists(path):
        return ""
    try:
        with os.scandir(folder or os.curdir) as entries:
            names = sorted(printable_path(entry.name) for entry in islice(entries, _MAX_READ))
    except OSError:
        return ""
    stems = {os.path.splitext(one)[0]: one for one in names}
    similar = closest(os.path.splitext(name)[0], stems)
    return f"; did you mean {stems[similar]}?" if similar else ""

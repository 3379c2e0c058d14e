"""Statistics that Linux provides about this process."""

from __future__ import annotations

import pathlib

_STATUS = pathlib.Path("/proc/self/status")


def process_status() -> dict[str, int]:
    """Return the numbers in /proc/self/status, keyed by name. Sizes are in KiB.

    Return an empty dict if the file does not exist.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return {}
    parts = (line.replace(":", " ").split() for line in lines)
    return {words[0]: int(words[1]) for words in parts if len(words) >= 2 and words[1].isdigit()}

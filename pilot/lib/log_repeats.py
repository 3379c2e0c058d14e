"""Lines of the log that say the same again and again are written a few times in a while, and then counted."""

from __future__ import annotations

import logging
from collections import OrderedDict

OFTEN, SECONDS, KEPT = 20, 10.0, 1000
"""An equal line is written so many times in so many seconds; so many different lines are remembered."""


class Repeats(logging.Filter):
    """Lets a line pass that was not written too often of late. The next one that passes says how many were left out."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: OrderedDict[int, list[float]] = OrderedDict()  # by their hashes, as lines may be long

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # a message that cannot be made is for the handler to tell
            return True
        key = hash((record.name, record.levelno, text))
        found = self._seen.get(key)
        if found is None:
            found = self._seen[key] = [record.created, 0, 0]
            if len(self._seen) > KEPT:
                self._seen.popitem(last=False)
        if record.created - found[0] >= SECONDS:
            found[0], found[1] = record.created, 0
            self._seen.move_to_end(key)
        found[1] += 1
        if found[1] > OFTEN:
            found[2] += 1
            return False
        if found[2]:
            record.msg, record.args = f"{text} ({int(found[2])} more of these were left out)", None
            found[2] = 0
        return True

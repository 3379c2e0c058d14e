"""Rate limit for repeated log lines."""

from __future__ import annotations

import logging
from collections import OrderedDict

MAX_REPEATS, WINDOW, CAPACITY = 20, 10.0, 1000
"""Maximum number of equal lines per window, length of the window in seconds, and number of distinct lines to remember.
"""


class Repeats(logging.Filter):
    """Drops lines that repeat too often. The next equal line that is written states how many were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self._recent: OrderedDict[int, list[float]] = OrderedDict()  # by hash, because lines may be long

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            text = record.getMessage()
        except Exception:  # the handler reports messages that cannot be formatted
            return True
        key = hash((record.name, record.levelno, text))
        line = self._recent.get(key)  # start of the window, lines written in it, lines dropped
        if line is None:
            line = self._recent[key] = [record.created, 0, 0]
            if len(self._recent) > CAPACITY:
                self._recent.popitem(last=False)
        if record.created - line[0] >= WINDOW:
            line[0], line[1] = record.created, 0
            self._recent.move_to_end(key)
        line[1] += 1
        if line[1] > MAX_REPEATS:
            line[2] += 1
            return False
        if line[2]:
            record.msg, record.args = f"{text} ({int(line[2])} more identical lines were dropped)", None
            line[2] = 0
        return True

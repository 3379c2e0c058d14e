"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

LONGEST = 64
"""Maximum number of characters of a word for which names are suggested. Comparisons take quadratic time."""
_CUTOFF = 0.72
_MAX_LISTED, _MAX_COMPARED = 20, 1000


def closest(word: str, names: Iterable[str]) -> str:
    """Return the name that is most similar to a word, regardless of case, or "" if none is similar."""
    if len(word) > LONGEST:
        return ""
    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=_CUTOFF)
    return by_lower[matches[0]] if matches else ""


def did_you_mean(word: str, names: Iterable[str], prefix: str = "") -> str:
    """Return a question that suggests the most similar name after `prefix`, or "" if no name is similar."""
    name = closest(word, names)
    return f"; did you mean {prefix}{name}?" if name else ""


def choices(word: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown word: the most similar name, and the first of all names."""
    if not names:
        return ""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{did_you_mean(word, names[:_MAX_COMPARED])}; known: {', '.join(sorted(names)[:_MAX_LISTED])}{more}"

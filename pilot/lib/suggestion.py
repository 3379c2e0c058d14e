"""Suggestions for misspelt words."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from itertools import islice

LONGEST = 64
"""Maximum number of characters of a word for which names are suggested. Comparisons take quadratic time."""
_CUTOFF = 0.72
_MAX_SUGGESTED = 3
_MAX_LISTED, _MAX_COMPARED = 20, 1000
_MAX_READ, _MAX_LIKELY = 2000, 10
"""Maximum numbers of names that `suggest_likely` reads, and that it compares with the word."""


def closest(word: str, names: Iterable[str]) -> str:
    """Return the name that is most similar to a word, regardless of case, or "" if none is similar."""
    return next(iter(_closest(word, names)), "")


def _closest(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that are most similar to a word, regardless of case. They are equally similar."""
    if len(word) > LONGEST:
        return []
    by_lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(word.lower(), by_lower, n=_MAX_SUGGESTED, cutoff=_CUTOFF)
    ratios = [difflib.SequenceMatcher(None, match, word.lower()).ratio() for match in matches]
    return [by_lower[match] for match, ratio in zip(matches, ratios, strict=True) if ratio == ratios[0]]


def did_you_mean(word: str, names: Iterable[str], prefix: str = "") -> str:
    """Return a question that suggests the most similar names after `prefix`, or "" if no name is similar."""
    suggested = [f"{prefix}{name}" for name in sorted(_closest(word, names))]
    if not suggested:
        return ""
    *others, last = suggested
    return f"; did you mean {' or '.join(filter(None, (', '.join(others), last)))}?"


def suggest_likely(word: str, names: Iterable[str], form: str = "{}") -> str:
    """Return a question that suggests the most similar of many names, or "" if no name is similar.

    Only names of about the same length with the same first or last character are compared, and few of them, so that
    this is cheap for thousands of names. `form` is the format of a suggested name.
    """
    ends = word[:1], word[-1:]
    likely = [
        name
        for name in islice(names, _MAX_READ)
        if abs(len(name) - len(word)) <= 2 and (name[:1] == ends[0] or name[-1:] == ends[1])
    ]
    likely.sort(key=lambda name: (name[:1] != ends[0], name[-1:] != ends[1], abs(len(name) - len(word)), name))
    similar = sorted(_closest(word, likely[:_MAX_LIKELY]))
    return f"; did you mean {' or '.join(map(form.format, similar))}?" if similar else ""


def choices(word: str, names: Sequence[str]) -> str:
    """Return the end of a message about an unknown word: the most similar name, and the first of all names."""
    if not names:
        return ""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return f"{did_you_mean(word, names[:_MAX_COMPARED])}; known: {', '.join(sorted(names)[:_MAX_LISTED])}{more}"

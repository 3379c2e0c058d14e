"""The files and assignments that the settings of an installation come from."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from deploy.operator.settings_tree import split_path
from pilot.ingest.files.documents import Document

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")


class InputOrigin(NamedTuple):
    """The sources of settings: files, each with its name and document, and assignments to paths below `spec`.

    Later files override earlier ones, and assignments override files.
    """

    files: tuple[tuple[str, Document], ...] = ()
    paths: tuple[str, ...] = ()

    def is_assigned(self, path: str) -> bool:
        """Return whether an assignment sets the field at a path, a part of it, or a field that contains it."""
        parts = _split(path)
        return any(_overlap(["spec", *split_path(assigned)], parts) for assigned in self.paths)

    def place(self, path: str) -> str:
        """Return "FILE:LINE: " for the field at a path, or its nearest parent, in the last file with it.

        Return "" if the field is assigned, or if no file sets a part of `spec` that contains it.
        """
        if self.is_assigned(path):
            return ""
        parts = _split(path)
        depth, name, document = max(
            ((_depth(document.plain, parts), name, document) for name, document in reversed(self.files)),
            key=lambda row: row[0],
            default=(0, "", None),
        )
        least = min(len(parts), 2)  # every file has a spec
        return f"{name}:{document.line_of(path)}: " if document is not None and depth >= least else ""


def _split(path: str) -> list[str]:
    return [key or name for key, name in _PART.findall(path)]


def _overlap(assigned: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether one of two paths begins with the other. A selector such as [name:x] stands for any index."""
    return all(one in (part, f"[{part}]") or ":" in one for one, part in zip(assigned, parts, strict=False))


def _depth(tree: Any, parts: Sequence[str]) -> int:
    """Return the number of parts of a path that exist in a tree."""
    return sum(1 for _ in _existing(tree, parts))


def _existing(tree: Any, parts: Sequence[str]) -> Iterator[Any]:
    for part in parts:
        if isinstance(tree, dict) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and part.isdecimal() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return
        yield tree

"""Reads the text of one object from a file that has been read before."""

from __future__ import annotations

import os
from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef
from pilot.ingest.files.chunks import split
from pilot.ingest.files.documents import SyntaxFault, read_chunk
from pilot.ingest.files.file_io import TooLarge, read_file

LARGEST_FILE = 4 * 1024 * 1024
"""Maximum size of a file from which the text of an object is read, in bytes."""
LARGEST_TEXT = 128 * 1024
"""Maximum size of the text of an object, in bytes."""


def read_text(path: str, ref: ObjectRef) -> tuple[int, str]:
    """Return the text of the document in a file that declares an object, and the number of its first line.

    Return (0, "") if the file cannot be read, or if it has no such document. Other documents are never returned.
    """
    if not os.path.isabs(path):
        return 0, ""
    try:
        data, _ = read_file(path, LARGEST_FILE)
    except (OSError, TooLarge, ValueError):
        return 0, ""
    for chunk in split(data):
        if len(chunk.text) > LARGEST_TEXT or ref.name.encode() not in chunk.text:
            continue
        try:
            documents = read_chunk(chunk)
        except SyntaxFault:
            continue
        if len(documents) == 1 and _declares(documents[0].plain, ref):
            text = chunk.text.decode(errors="replace")
            start = chunk.lines + 1
            if text.startswith("---"):
                start, text = start + 1, text.partition("\n")[2]
            return start, text.rstrip()
    return 0, ""


def _declares(plain: Any, ref: ObjectRef) -> bool:
    metadata = plain.get("metadata") if isinstance(plain, dict) else None
    if not isinstance(metadata, dict):
        return False
    group = str(plain.get("apiVersion", "")).rpartition("/")[0]
    kind = GroupKind(group, str(plain.get("kind", "")))
    namespace = metadata.get("namespace") or ("default" if ref.namespace else "")
    return (kind, namespace, metadata.get("name")) == (ref.kind, ref.namespace, ref.name)

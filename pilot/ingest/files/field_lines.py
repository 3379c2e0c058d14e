"""Finds the lines of objects and of their fields in a file that has been read before."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef
from pilot.ingest.files.chunks import split
from pilot.ingest.files.documents import Document, SyntaxFault, read_chunk, read_json
from pilot.ingest.files.file_io import LARGEST, TooLarge, read_file

Field = tuple[ObjectRef, str]
"""An object, and the path of one of its fields, or "" for the object itself."""
_WORD = re.compile(rb"[a-z0-9][-a-z0-9.]*")
_NAME = "metadata.name"


def find_lines(path: str, fields: Collection[Field]) -> dict[Field, int]:
    """Return the line of each field, counted from 1. Fields that the file does not contain are omitted.

    The line of an object is that of its name. Only the documents that contain one of the names are parsed.
    """
    fields_by_object: dict[ObjectRef, list[str]] = {}
    for ref, field in fields:
        fields_by_object.setdefault(ref, []).append(field)
    try:
        data, _ = read_file(path, LARGEST)
        return dict(_lines(_documents(path, data, {ref.name.encode() for ref in fields_by_object}), fields_by_object))
    except (OSError, TooLarge, SyntaxFault):
        return {}


def _documents(path: str, data: bytes, names: Collection[bytes]) -> Iterator[Document]:
    if path.endswith(".json"):
        yield from read_json(data)
        return
    for chunk in split(data):
        if any(word[0] in names for word in _WORD.finditer(chunk.text)):
            yield from read_chunk(chunk)


def _lines(
    documents: Iterator[Document], fields_by_object: Mapping[ObjectRef, Collection[str]]
) -> Iterator[tuple[Field, int]]:
    for document in documents:
        for prefix, plain in _objects(document.plain):
            ref = _ref(plain)
            for namespaced in (ref, ref._replace(namespace=ref.namespace or "default")):
                for field in fields_by_object.get(namespaced, ()):
                    yield (namespaced, field), document.line_of(f"{prefix}{field or _NAME}")


def _objects(plain: Any) -> Iterator[tuple[str, Any]]:
    """Yield the object in a document, or the items of a list, each with the prefix of its fields."""
    if isinstance(plain, dict) and isinstance(items := plain.get("items"), list):
        for index, item in enumerate(items):
            kind = str(plain.get("kind", "")).removesuffix("List")
            yield (
                f"items[{index}].",
                {"apiVersion": plain.get("apiVersion"), "kind": kind, **item} if isinstance(item, dict) else {},
            )
    else:
        yield "", plain


def _ref(plain: Any) -> ObjectRef:
    """Return the reference to an object. Its namespace is "" if the file does not specify it."""
    metadata = plain.get("metadata") if isinstance(plain, dict) else None
    if not isinstance(metadata, dict):
        return ObjectRef()
    group, _, _ = str(plain.get("apiVersion", "")).rpartition("/")
    return ObjectRef(
        GroupKind(group, str(plain.get("kind", ""))),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name", "")),
    )

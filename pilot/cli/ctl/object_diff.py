"""Compares the objects in two files."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

from deploy.operator.manifest import yaml_text
from pilot.cli.ctl.client import CommandError
from pilot.ingest.files.documents import SyntaxFault, read_documents

Objects = dict[str, dict[str, Any]]


def objects_of(text: str, name: str) -> Objects:
    """Return the objects in a file, keyed by "Kind namespace/name".

    Raise CommandError if the file is not valid YAML, or contains no objects.
    """
    try:
        documents = [document.plain for document in read_documents(text.encode(), name)]
    except SyntaxFault as fault:
        raise CommandError(f"{name}:{fault.line}: {fault}") from fault
    objects = {_key(plain): plain for plain in documents if isinstance(plain, dict) and plain.get("kind")}
    if not objects:
        raise CommandError(f"{name} contains no objects")
    return objects


def _key(plain: dict[str, Any]) -> str:
    metadata = plain.get("metadata") or {}
    return f"{plain['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata.get('name'))))}"


def differences(one: Objects, other: Objects, names: Sequence[str]) -> list[str]:
    """Return the differences between two sets of objects, which have `names`.

    These are the objects that only one set contains, and unified diffs of the other objects.
    """
    lines = [f"only in {names[0]}: {key}" for key in sorted(set(one) - set(other))]
    lines += [f"only in {names[1]}: {key}" for key in sorted(set(other) - set(one))]
    for key in sorted(set(one) & set(other)):
        if one[key] != other[key]:
            first, second = (f"{name}: {key}" for name in names)
            lines += text_difference(yaml_text(one[key]), yaml_text(other[key]), first, second)
    return lines


def text_difference(one: str, other: str, name: str, other_name: str) -> list[str]:
    """Return the lines of a unified diff."""
    return [
        line.rstrip("\n")
        for line in difflib.unified_diff(one.splitlines(), other.splitlines(), name, other_name, lineterm="")
    ]

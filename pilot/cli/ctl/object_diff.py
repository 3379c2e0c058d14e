"""Objects of two files compared, one by one and field by field."""

from __future__ import annotations

import difflib
from typing import Any

from deploy.operator.manifest import yaml_text
from pilot.cli.ctl.client import CommandError
from pilot.ingest.documents import SyntaxFault, read_documents

Objects = dict[str, dict[str, Any]]


def objects_of(text: str, name: str) -> Objects:
    """Returns the objects of a file by "Kind namespace/name". CommandError where it cannot be read."""
    try:
        documents = [document.plain for document in read_documents(text.encode(), name)]
    except SyntaxFault as fault:
        raise CommandError(f"{name}:{fault.line}: {fault}") from fault
    return {_key(plain): plain for plain in documents if isinstance(plain, dict) and plain.get("kind")}


def _key(plain: dict[str, Any]) -> str:
    metadata = plain.get("metadata") or {}
    return f"{plain['kind']} {'/'.join(filter(None, (metadata.get('namespace'), metadata.get('name'))))}"


def differences(one: Objects, other: Objects) -> list[str]:
    """Returns the lines that tell two sets of objects apart: objects that only one of them has, and a unified diff of each that both have."""
    lines = [f"only in the first: {key}" for key in sorted(set(one) - set(other))]
    lines += [f"only in the second: {key}" for key in sorted(set(other) - set(one))]
    for key in sorted(set(one) & set(other)):
        if one[key] != other[key]:
            lines += text_difference(yaml_text(one[key]), yaml_text(other[key]), key)
    return lines


def text_difference(one: str, other: str, name: str) -> list[str]:
    """Returns the lines of a unified diff."""
    return [
        line.rstrip("\n")
        for line in difflib.unified_diff(one.splitlines(), other.splitlines(), name, name, lineterm="")
    ]

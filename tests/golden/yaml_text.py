"""Plain data as YAML that is short and easy to review.

Maps and lists of scalars are on one line if they fit. A block that occurs again in the document is written once, with an anchor
named after what it is, and then referred to.
"""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

WIDTH = 100
SMALLEST_SHARED = 6
"""Lines of the smallest block that is written once."""
_PLAIN_SCALAR = re.compile(r"[A-Za-z_/][\w./|*-]*(?: [\w./|*-]+)*|\d+(?:\.\d+)?s|\d+(?:\.\d+){3}(?:[_/][\w.]+)?")
"""Strings without quotes: words, durations and IPv4 addresses."""
_OTHER_TYPES = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}
"""Words that YAML does not read as strings."""


def load_yaml(text: str) -> Any:
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def to_yaml(value: dict[str, Any]) -> str:
    """Return the YAML document of a map, whose keys are sorted."""
    return "".join(f"{line}\n" for line in _Document(value).lines(value, ""))


class _Document:
    """Writes one document. `_count` is how often a block occurs, and `_anchors` has the blocks that are already written."""

    def __init__(self, value: Any) -> None:
        self._keys: dict[int, str] = {}
        self._count: collections.Counter[str] = collections.Counter()
        self._anchors: dict[str, str] = {}
        self._numbers: collections.Counter[str] = collections.Counter()
        self._count_blocks(value)

    def _count_blocks(self, value: Any) -> None:
        if isinstance(value, dict | list) and value:
            key = self._key(value)
            self._count[key] += 1
            if self._count[key] == 1:
                for item in value.values() if isinstance(value, dict) else value:
                    self._count_blocks(item)

    def _key(self, value: Any) -> str:
        if id(value) not in self._keys:
            self._keys[id(value)] = json.dumps(value, sort_keys=True)
        return self._keys[id(value)]

    def lines(self, value: Any, label: str) -> Iterator[str]:
        """Yield the lines of a block; `label` names it if it has no name."""
        if isinstance(value, dict):
            for key in sorted(value):
                yield from self._entry(f"{_scalar(key)}:", value[key], key)
        else:
            for item in value:
                yield from self._entry("-", item, label)

    def _entry(self, head: str, value: Any, label: str) -> Iterator[str]:
        """Yield the lines of a map's entry, `head` is `key:`, or of a list's item, `head` is `-`."""
        line = _on_one_line(value)
        if line is not None and (not isinstance(value, dict | list) or len(head) + 1 + len(line) <= WIDTH):
            yield f"{head} {line}"
            return
        if isinstance(value, str):
            yield f"{head} |" if value.endswith("\n") else f"{head} |-"
            yield from (f"  {text}" if text else "" for text in value.removesuffix("\n").split("\n"))
            return
        key = self._key(value)
        if key in self._anchors:
            yield f"{head} *{self._anchors[key]}"
            return
        lines = list(self.lines(value, label))
        if self._count[key] > 1 and len(lines) >= SMALLEST_SHARED:
            self._anchors[key] = self._anchor_name(value, label)
            yield f"{head} &{self._anchors[key]}"
        elif head == "-" and not lines[0].startswith("- "):
            yield f"- {lines[0]}"
            lines = lines[1:]
        else:
            yield head
        indent = "" if isinstance(value, list) and head != "-" else "  "
        yield from (f"{indent}{text}" if text else "" for text in lines)

    def _anchor_name(self, value: Any, label: str) -> str:
        name = value.get("name") if isinstance(value, dict) else None
        word = re.sub(r"[^A-Za-z0-9]+", "-", name if isinstance(name, str) else label).strip("-") or "block"
        self._numbers[word] += 1
        return word if self._numbers[word] == 1 else f"{word}-{self._numbers[word]}"


def _on_one_line(value: Any) -> str | None:
    """Return a scalar, or a map or list of scalars, on one line, or None for a block."""
    if not isinstance(value, dict | list):
        return None if isinstance(value, str) and _is_block_text(value) else _scalar(value)
    items = value.values() if isinstance(value, dict) else value
    if any((isinstance(item, dict | list) and item) or (isinstance(item, str) and "\n" in item) for item in items):
        return None
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_scalar(key)}: {_flow_scalar(value[key])}" for key in sorted(value)) + "}"
    return "[" + ", ".join(map(_flow_scalar, value)) + "]"


def _is_block_text(text: str) -> bool:
    """Return whether a string is written as a block: it has a newline, and only content that a block can have."""
    lines = text.removesuffix("\n").split("\n")
    is_regular = all(line.isprintable() and line == line.rstrip() for line in lines)
    return "\n" in text and is_regular and lines[0] == lines[0].lstrip() and all((lines[0], lines[-1]))


def _flow_scalar(value: Any) -> str:
    return "{}" if isinstance(value, dict) else "[]" if isinstance(value, list) else _scalar(value)


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN_SCALAR.fullmatch(value) and value.lower() not in _OTHER_TYPES:
            return value
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(value)

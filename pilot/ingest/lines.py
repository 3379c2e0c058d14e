"""Where in a text a path of one of its documents is, for messages."""
from __future__ import annotations

import re

import yaml

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Outline:
    """The nodes of the documents of a text that hold anything. The text is parsed at the first question, and once."""

    __slots__ = ("_data", "_lines", "_roots")

    def __init__(self, data: bytes, lines: int = 0) -> None:
        self._data, self._lines = data, lines
        self._roots: list[yaml.Node] | None = None

    def line(self, document: int, start: int, path: str) -> int:
        """Returns the line of a path (`spec.http[0].match`) in the file, from 1.

        `document` is an index, `start` the line that the document begins at, and `lines` are before the text in its file. A path that
        is not there, as of a field that is missing, is where its nearest parent is.
        """
        line = start
        node = self._root(document) if path else None
        for key, name in _PART.findall(path) if node is not None else ():
            found = _child(node, key or name)
            if found is None:
                break
            line, node = self._lines + found[0], found[1]
        return line

    def _root(self, document: int) -> yaml.Node | None:
        if self._roots is None:
            try:
                self._roots = [node for node in yaml.compose_all(self._data, Loader=_LOADER) if not _empty(node)]
            except (yaml.YAMLError, RecursionError):  # JSON that is no YAML, or nested too deeply
                self._roots = []
        return self._roots[document] if document < len(self._roots) else None


def _empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null")


def _child(node: yaml.Node | None, key: str) -> tuple[int, yaml.Node] | None:
    """Returns the line, from 1, of a mapping's key or a list's item, and its value."""
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item: yaml.Node = node.value[int(key)]
        return item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                return name.start_mark.line + 1, value
    return None

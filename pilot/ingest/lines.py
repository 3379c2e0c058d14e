"""Where in a text a path of one of its documents is: for messages, so it may take its time."""
from __future__ import annotations

import re

import yaml

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Lines:
    """From paths (`spec.http[0].match`) to lines, from 1, in the document of that index among those that hold anything.

    A path that is not there, as of a field that is missing, is where its nearest parent is.
    """

    __slots__ = ("_data", "_document", "_root", "_start")

    def __init__(self, data: bytes, document: int, start: int) -> None:
        self._data, self._document, self._start = data, document, start
        self._root: yaml.Node | None = None

    def __call__(self, path: str) -> int:
        line = self._start
        node = self._find_root() if path else None
        for key, name in _PART.findall(path) if node is not None else ():
            found = _child(node, key or name)
            if found is None:
                break
            line, node = found
        return line

    def _find_root(self) -> yaml.Node | None:
        if self._root is None:
            try:
                nodes = [node for node in yaml.compose_all(self._data, Loader=_LOADER) if not _empty(node)]
            except (yaml.YAMLError, RecursionError):  # JSON that is no YAML, or nested too deeply
                return None
            self._root = nodes[self._document] if self._document < len(nodes) else None
        return self._root


def _empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null")


def _child(node: yaml.Node | None, key: str) -> tuple[int, yaml.Node] | None:
    """The line of a mapping's key or a list's item, and its value."""
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item: yaml.Node = node.value[int(key)]
        return item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                return name.start_mark.line + 1, value
    return None

"""Where in a text a path of one of its documents is: for messages, so it may take its time."""
from __future__ import annotations

import functools
import re
from collections.abc import Callable

import yaml

_PART = re.compile(r"\[([^\]]*)\]|([^.\[\]]+)")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def line_finder(data: bytes, document: int, start: int) -> Callable[[str], int]:
    """A function from paths (`spec.http[0].match`) to lines, from 1, for the document of that index among those that hold anything.

    A path that is not there, as of a field that is missing, is where its nearest parent is.
    """

    @functools.cache
    def root() -> yaml.Node | None:
        try:
            nodes = [node for node in yaml.compose_all(data, Loader=_LOADER) if not _empty(node)]
        except (yaml.YAMLError, RecursionError):  # JSON that is no YAML, or nested too deeply
            return None
        return nodes[document] if document < len(nodes) else None

    def line_of(path: str) -> int:
        node = root() if path else None
        if node is None:
            return start
        line = start
        for key, name in _PART.findall(path):
            found = _child(node, key or name)
            if found is None:
                break
            line, node = found
        return line

    return line_of


def _empty(node: yaml.Node | None) -> bool:
    return node is None or (isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null")


def _child(node: yaml.Node, key: str) -> tuple[int, yaml.Node] | None:
    """The line of a mapping's key or a list's item, and its value."""
    if isinstance(node, yaml.SequenceNode) and key.isdecimal() and int(key) < len(node.value):
        item: yaml.Node = node.value[int(key)]
        return item.start_mark.line + 1, item
    if isinstance(node, yaml.MappingNode):
        for name, value in node.value:
            if isinstance(name, yaml.ScalarNode) and name.value == key:
                return name.start_mark.line + 1, value
    return None

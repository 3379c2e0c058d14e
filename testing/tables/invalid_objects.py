"""Objects that are wrong in exactly one way, each with the problem that must tell of it."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent / "invalid"
_TITLE = re.compile(r"# (?P<name>[^:]+): (?P<code>\S+) (?P<path>.+?)(?P<warns> \(warning\))?\n")


class Bad(NamedTuple):
    """`text`: a whole YAML document, of an object `bad` in the namespace `shop` where it has a name. `warns`: it goes in all the same."""

    name: str
    code: str
    path: str
    warns: bool
    text: str


def bad_objects() -> list[Bad]:
    """Every document of the folder; its first line is `# what is wrong: code path`, with `(warning)` where it goes in all the same."""
    found: list[Bad] = []
    for file in sorted(FOLDER.glob("*.yaml")):
        for text in file.read_text().split("---\n"):
            title = _TITLE.match(text)
            assert title is not None, f"{file}: no title: {text[:80]}"
            path = "" if title["path"] == "-" else title["path"]
            found.append(Bad(f"{file.stem}: {title['name']}", title["code"], path, title["warns"] is not None, text))
    return found

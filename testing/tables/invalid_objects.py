"""Objects with exactly one error, and the expected problem for each."""

from __future__ import annotations

import pathlib
import re
from typing import NamedTuple

FOLDER = pathlib.Path(__file__).parent / "invalid"
_TITLE = re.compile(r"# (?P<name>[^:]+): (?P<code>\S+) (?P<path>.+?)(?P<warns> \(warning\))?\n")


class InvalidObject(NamedTuple):
    """An object with one error.

    `text` is a YAML document; named objects are called `bad`, in namespace `shop`. With `warns`, the object is accepted
    with a warning.
    """

    name: str
    code: str
    path: str
    warns: bool
    text: str


def load_invalid_objects() -> list[InvalidObject]:
    """Return the objects of all files.

    The first line of each document is `# description: code path`, with `(warning)` if the object is accepted.
    """
    objects: list[InvalidObject] = []
    for file in sorted(FOLDER.glob("*.yaml")):
        for text in file.read_text().split("---\n"):
            title = _TITLE.match(text)
            assert title is not None, f"{file}: no title: {text[:80]}"
            path = "" if title["path"] == "-" else title["path"]
            objects.append(
                InvalidObject(f"{file.stem}: {title['name']}", title["code"], path, title["warns"] is not None, text)
            )
    return objects

"""Labels and annotations of the pod, read from files of the Kubernetes downward API.

Each line has the form key="value". The value is a Go string literal.
"""

from __future__ import annotations

import json
import pathlib
import re

_GO_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|[av'])")
_SHORT_ESCAPES = {"a": "\a", "v": "\v", "'": "'"}


def parse_downward_file(text: str) -> dict[str, str]:
    """Return the key-value pairs, ignoring lines without "=".

    Raises ValueError with the key if its value is not quoted.
    """
    pairs = {}
    for line in text.splitlines():
        key, equals, quoted = line.partition("=")
        if equals:
            pairs[key] = _unquote(key, quoted)
    return pairs


def read_downward_file(path: str, variable: str) -> dict[str, str]:
    """Return the key-value pairs in a file, or {} if it does not exist.

    Raises ValueError with the name of the file and the variable that sets it.
    """
    try:
        return parse_downward_file(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ValueError(f"{variable}: {path}: {reason}") from error


def _unquote(key: str, quoted: str) -> str:
    """Return the value of a Go string literal. Go's literals differ from JSON strings only in a few escapes."""
    try:
        value = json.loads(_GO_ESCAPE.sub(_to_json_escape, quoted))
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise ValueError(f"the value of {key} is not a quoted string")
    return value


def _to_json_escape(match: re.Match[str]) -> str:
    escape = match[1]
    character = _SHORT_ESCAPES.get(escape) or chr(int(escape[1:], 16))
    return json.dumps(character)[1:-1]

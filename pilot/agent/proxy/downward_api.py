"""Labels and annotations of the own pod, as Kubernetes' downward API writes them to a file: key="value", quoted as Go does."""

from __future__ import annotations

import json
import pathlib
import re

_OCTAL_OR_HEX = re.compile(r"\\(x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|[av'])")
_SHORT = {"a": "\a", "v": "\v", "'": "'"}


def parse_downward_file(text: str) -> dict[str, str]:
    """Returns the pairs of such a file; lines without "=" are skipped. ValueError, which names the key, where a value is not quoted."""
    found = {}
    for line in text.splitlines():
        key, equals, quoted = line.partition("=")
        if equals:
            found[key] = _unquote(key, quoted)
    return found


def read_downward_file(path: str) -> dict[str, str]:
    """Returns the pairs of a file, none where there is no file. ValueError, which names the file, where it cannot be read or understood."""
    try:
        return parse_downward_file(pathlib.Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def _unquote(key: str, quoted: str) -> str:
    """Returns what a Go string literal says; apart from a few escapes it is one of JSON."""
    try:
        value = json.loads(_OCTAL_OR_HEX.sub(_as_json, quoted))
    except ValueError:
        value = None
    if not isinstance(value, str):
        raise ValueError(f"the value of {key} is not a quoted string")
    return value


def _as_json(found: re.Match[str]) -> str:
    escape = found[1]
    character = _SHORT.get(escape) or chr(int(escape[1:], 16))
    return json.dumps(character)[1:-1]

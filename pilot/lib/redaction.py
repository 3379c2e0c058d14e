"""The environment and arguments of the process, without secrets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

HIDDEN = "(hidden)"
_SECRET_NAME = re.compile(
    r"token|secret|passw|pwd|passphrase|credential|private|auth|cookie|apikey|headers|(^|[_.\-])key($|[_.\-])",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"PRIVATE KEY-----|\beyJ[\w-]+\.[\w-]+\.|\bBearer\s", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(\w+://)[^/@\s]+@")


def redacted_environment(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Return the environment variables, sorted by name.

    A value is `HIDDEN` if its name or content indicates a secret.
    """
    return [{"name": name, "value": _redact(name, value)} for name, value in sorted(environ.items())]


def redacted_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the command-line arguments. The value of a flag is `HIDDEN` if its name or content indicates a secret.

    The value may be in the same argument as the flag, or in the next one.
    """
    visible: list[str] = []
    before = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and equals:
            visible.append(f"{name}={_redact(name, value)}")
        else:
            visible.append(argument if argument.startswith("-") else _redact(before, argument))
        before = argument if argument.startswith("-") and not equals else ""
    return visible


def _redact(name: str, value: str) -> str:
    if value and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value)):
        return HIDDEN
    return _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", value)

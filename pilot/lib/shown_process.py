"""Environment and arguments of the process, without the secrets in them."""

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


def shown_environment(environ: Mapping[str, str]) -> list[dict[str, str]]:
    """Returns the variables by name; the value of one is `HIDDEN` whose name, or whose value, is that of a secret."""
    return [{"name": name, "value": _shown(name, value)} for name, value in sorted(environ.items())]


def shown_arguments(arguments: Sequence[str]) -> list[str]:
    """Returns the arguments of the command line; hidden are values of flags whose name is that of a secret, after "=" or in the next one."""
    shown: list[str] = []
    before = ""
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if argument.startswith("-") and equals:
            shown.append(f"{name}={_shown(name, value)}")
        else:
            shown.append(argument if argument.startswith("-") else _shown(before, argument))
        before = argument if argument.startswith("-") and not equals else ""
    return shown


def _shown(name: str, value: str) -> str:
    if value and (_SECRET_NAME.search(name) or _SECRET_VALUE.search(value)):
        return HIDDEN
    return _PASSWORD_IN_URL.sub(rf"\1{HIDDEN}@", value)

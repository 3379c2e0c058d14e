"""Sprig's case conversions: snake_case, kebab-case, CamelCase. https://masterminds.github.io/sprig/strings.html"""

from __future__ import annotations

import re

from gotemplate.function import Function, takes


def _words(text: str, connector: str) -> str:
    """Return the words of a text in lower case, joined with a connector.

    A number belongs to the preceding word. If lower-case letters follow the number, it starts a new word.
    """
    text = re.sub(
        r"(?<=[A-Za-z])(?<!\d[a-z])(?=\d+[a-z])|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=\d)(?=[A-Z])",
        "\0",
        text,
    )
    return re.sub(r"[-_\s\0]", connector, text).lower()


def camel_case(text: str) -> str:
    """Return the words capitalized and joined."""
    head = re.match(r"[-_\s]*", text)
    lead = head[0] if head else ""
    parts = re.split(r"([-_\s]+)", text[len(lead) :])
    out = [lead]
    for index, part in enumerate(parts):
        if index % 2:
            out.append(part[1:] if parts[index + 1] else part)
        elif part:
            out.append(part[0].upper() + _lower_run(part))
    return "".join(out)


def _lower_run(part: str) -> str:
    """Return a word without its first letter. If it is in upper case, convert the upper-case letters that follow it to
    lower case."""
    run = re.match(r"[A-Z]*", part[1:]) if part[0].isupper() else None
    length = len(run[0]) if run else 0
    return part[1 : 1 + length].lower() + part[1 + length :]


WORDS: dict[str, Function] = {
    "snakecase": takes("string", lambda text: _words(text, "_")),
    "kebabcase": takes("string", lambda text: _words(text, "-")),
    "camelcase": takes("string", camel_case),
}

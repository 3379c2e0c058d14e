"""Syntax of the parts of a request that options describe, so that mistyped requests are rejected, not evaluated."""

from __future__ import annotations

import re

import click

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = r"[^/\s:]+"


class RequestText(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Text that matches `pattern`. `expected` describes such texts to users."""

    name = "text"

    def __init__(self, pattern: str, expected: str) -> None:
        self._pattern, self._expected = re.compile(pattern), expected

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raise click.BadParameter if it does not match, or if it is not UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("not valid UTF-8; percent-encode other bytes", param, ctx)
        if not self._pattern.fullmatch(value):
            self.fail(f"{value!r}: expected {self._expected}", param, ctx)
        return value


METHOD = RequestText(r"[!#$%&'*+.^_`|~0-9A-Z-]+", "one method in upper case, such as GET")
PATH = RequestText(r"/[^\s\x00-\x1f\x7f]*", "a path that begins with / and contains no spaces, such as /a%20b")
HOST = RequestText(r"[^\s/@?#]+", "NAME or NAME:PORT")
SERVER_NAME = RequestText(r"[^\s/:@?#]+", "a host name")
HEADER = RequestText(rf"{_TOKEN}=[^\x00-\x08\x0a-\x1f\x7f]*", "NAME=VALUE")
CLAIM = RequestText(r"(?s)[^=]+=.*", "NAME=VALUE")
NAMESPACE = RequestText(_LABEL, "the name of a namespace: at most 63 lower-case letters, digits and hyphens")
PRINCIPAL = RequestText(
    rf"(?:spiffe://)?{_DOMAIN}/ns/{_LABEL}/sa/[^/\s]+|spiffe://{_DOMAIN}/[^\s]+",
    "DOMAIN/ns/NAMESPACE/sa/ACCOUNT, or a whole SPIFFE ID: spiffe://DOMAIN/PATH",
)

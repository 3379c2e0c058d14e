"""Syntax of the parts of a request that options describe, so that mistyped requests are rejected, not evaluated."""

from __future__ import annotations

import re
from collections.abc import Callable

import click

from pilot.lib.addresses import is_ip

_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = r"[^/\s:]+"


class RequestText(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.5
    """Text for which `match` returns a match. `expected` describes such texts to users."""

    name = "text"

    def __init__(self, match: Callable[[str], object], expected: str) -> None:
        self._match, self._expected = match, expected

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text. Raise click.BadParameter if it does not match, or if it is not UTF-8."""
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail("not valid UTF-8; percent-encode other bytes", param, ctx)
        if not self._match(value):
            self.fail(f"{value!r}: expected {self._expected}", param, ctx)
        return value


_METHOD = re.compile(r"[!#$%&'*+.^_`|~0-9A-Z-]+")
METHOD = RequestText(_METHOD.fullmatch, "one method in upper case, such as GET")
_PATH = re.compile(r"/[^\s\x00-\x1f\x7f]*")
PATH = RequestText(_PATH.fullmatch, "a path that begins with / and contains no spaces, such as /a%20b")
_HOST = re.compile(r"[^\s/@?#]+")
HOST = RequestText(_HOST.fullmatch, "NAME or NAME:PORT")
_SERVER_NAME = re.compile(r"[^\s/:@?#]+")
SERVER_NAME = RequestText(_SERVER_NAME.fullmatch, "a host name")
_HEADER = re.compile(rf"{_TOKEN}=[^\x00-\x08\x0a-\x1f\x7f]*")
HEADER = RequestText(_HEADER.fullmatch, "NAME=VALUE")
_CLAIM = re.compile(r"(?s)[^=]+=.*")
CLAIM = RequestText(_CLAIM.fullmatch, "NAME=VALUE")
_NAMESPACE = re.compile(_LABEL)
_ANY_NAMESPACE = re.compile(rf"(?:{_LABEL})?")
_NAMESPACES = "the name of a namespace: at most 63 lower-case letters, digits and hyphens"
NAMESPACE = RequestText(_NAMESPACE.fullmatch, _NAMESPACES)
ANY_NAMESPACE = RequestText(_ANY_NAMESPACE.fullmatch, _NAMESPACES)
"""The name of a namespace, or "" for all of them or that of another argument."""
_OBJECT = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")
OBJECT_NAME = RequestText(
    _OBJECT.fullmatch, "the name of an object: at most 253 lower-case letters, digits, hyphens and dots"
)
WORKLOAD_ADDRESS = RequestText(
    lambda text: not text or is_ip(text),
    "the IP address of a workload; use --ztunnel URL for the admin address of a ztunnel",
)
_URL = re.compile(r"https?://[^\s/@?#]+(?:[/@?#][^\s]*)?")
URL = RequestText(_URL.fullmatch, "a URL, such as https://203.0.113.9:6443")
_PRINCIPAL = re.compile(rf"{_LABEL}/[^/\s]+|(?:spiffe://)?{_DOMAIN}/ns/{_LABEL}/sa/[^/\s]+|spiffe://{_DOMAIN}/[^\s]+")
PRINCIPAL = RequestText(
    _PRINCIPAL.fullmatch,
    "NAMESPACE/ACCOUNT, DOMAIN/ns/NAMESPACE/sa/ACCOUNT, or a whole SPIFFE ID: spiffe://DOMAIN/PATH",
)

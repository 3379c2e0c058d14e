"""Validation of the names and values of HTTP headers."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pilot.config.networking.virtual_service import HeaderOperations, Headers
from pilot.config.problem import Problems, below, error, warning
from pilot.config.validation.rules import Findings
from pilot.lib.format_string import find_format_fault

CLAIM_PREFIX = "@request.auth.claims"
_TOKEN = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+", re.ASCII)  # RFC 9110 section 5.6.2
_STRICT = re.compile(r"[-_A-Za-z0-9]+", re.ASCII)
_PSEUDO = frozenset({":method", ":scheme", ":authority", ":path", ":status"})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_LINE = re.compile(r"[\x00\n\r]")


def is_claim(name: str) -> bool:
    """Return whether a header match refers to a JWT claim.

    The name of such a match is `@request.auth.claims.NAME` or `@request.auth.claims[NAME][NAME]`.
    """
    if not name.lower().startswith(CLAIM_PREFIX):
        return False
    rest = name[len(CLAIM_PREFIX) :]
    return len(rest) > 1 if rest.startswith(".") else len(rest) > 2 and rest.startswith("[") and rest.endswith("]")


def check_matched_name(path: str, name: str) -> Findings:
    """Return an error unless the header name in a match is a token, a pseudo-header or a JWT claim."""
    if name in _PSEUDO or _TOKEN.fullmatch(name) or is_claim(name):
        return ()
    return (error("bad-header-name", path, f"{name!r} is not a valid header name"),)


def check_cors_name(path: str, name: str) -> Findings:
    """Return an error unless a header name in a CORS policy is a token. The name `*` is a token."""
    return () if _TOKEN.fullmatch(name) else (error("bad-header-name", path, f"{name!r} is not a valid header name"),)


def check_strict_name(path: str, name: str) -> Findings:
    """Return an error unless a name consists of letters, digits, hyphens and underscores."""
    return () if _STRICT.fullmatch(name) else (error("bad-header-name", path, f"{name!r} is not a valid header name"),)


def check_value(path: str, value: str) -> Findings:
    """Return an error if a value to set for a header contains control characters or is not a valid format string."""
    if _CONTROL.search(value):
        return (error("bad-header-value", path, "control characters are not allowed"),)
    return check_format(path, value, "bad-header-value")


def check_format(path: str, text: str, code: str = "bad-format") -> Findings:
    """Return an error if Envoy cannot parse a format string."""
    fault = find_format_fault(text)
    return (error(code, path, fault),) if fault else ()


def check_line(path: str, text: str) -> Findings:
    """Return an error if a literal header value contains line breaks."""
    return (error("bad-header-value", path, "line breaks are not allowed"),) if _LINE.search(text) else ()


def validate_headers(headers: Headers) -> Problems:
    if headers.request is not None:
        yield from below("request", _validate_operations(headers.request, authority=True))
    if headers.response is not None:
        yield from below("response", _validate_operations(headers.response, authority=False))


def _validate_operations(operations: HeaderOperations, authority: bool) -> Problems:
    for field, values in (("add", operations.add), ("set", operations.set)):
        yield from _check_values(field, values, authority)
    for index, name in enumerate(operations.remove):
        yield from _check_operated_name(f"remove[{index}]", name, authority=False)


def _check_values(field: str, values: Mapping[str, str], authority: bool) -> Problems:
    for name, value in values.items():
        yield from _check_operated_name(f"{field}[{name}]", name, authority)
        yield from check_value(f"{field}[{name}]", value)


def _check_operated_name(path: str, name: str, authority: bool) -> Findings:
    """Return an error if a header cannot be modified, or a warning if HTTP does not allow its name.

    With `authority`, the Host header can be modified.
    """
    lower = name.lower()
    if not name or _LINE.search(name):
        return (error("bad-header-name", path, f"{name!r} is not a valid header name"),)
    if (lower.startswith(":") or lower == "host") and not (authority and lower in (":authority", "host")):
        hint = "; to change the path, use rewrite: {uri: /x}" if lower == ":path" and authority else ""
        return (error("bad-header-name", path, f"{name!r} cannot be modified here{hint}"),)
    if name[0] != ":" and not _TOKEN.fullmatch(name):
        return (warning("bad-header-name", path, f"{name!r} is not a valid header name"),)
    return ()


def authorities(headers: Headers | None) -> list[str]:
    """Return the values that header operations set for the Host header of requests."""
    if headers is None or headers.request is None:
        return []
    request = headers.request
    return [
        value
        for values in (request.set, request.add)
        for name, value in values.items()
        if name.lower() in (":authority", "host")
    ]

"""Sprig's URL functions. https://masterminds.github.io/sprig/url.html"""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from gotemplate.function import Function, takes
from gotemplate.quoting import quoted
from gotemplate.values import kind_name

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):(.*)", re.DOTALL)


def parse(text: str) -> dict[str, Any]:
    """Split a URL into its parts. Raises ValueError if it is invalid."""
    if any(ord(c) < 32 or ord(c) == 127 for c in text):
        raise ValueError(f"unable to parse url: parse {quoted(text)}: net/url: invalid control character in URL")
    rest, _, fragment = text.partition("#")
    match = _SCHEME.fullmatch(rest)
    scheme, rest = (match[1].lower(), match[2]) if match else ("", rest)
    rest, _, query = rest.partition("?")
    opaque = rest if scheme and not rest.startswith("/") else ""
    authority, path = "", "" if opaque else rest
    if path.startswith("//"):
        authority, slash, tail = path[2:].partition("/")
        path = slash + tail
    user, _, host = authority.rpartition("@")
    name = re.sub(r":\d*$", "", host)
    return {
        "scheme": scheme,
        "host": host,
        "hostname": name.strip("[]"),
        "path": urllib.parse.unquote(path),
        "query": query,
        "opaque": opaque,
        "fragment": urllib.parse.unquote(fragment),
        "userinfo": user,
    }


def join(parts: dict[str, Any]) -> str:
    """Return the URL that consists of the parts. Raises ValueError if a part is not a string."""
    values = {
        name: _text(parts or {}, name) for name in ("scheme", "host", "path", "query", "opaque", "fragment", "userinfo")
    }
    scheme = f"{values['scheme']}:" if values["scheme"] else ""
    if values["opaque"]:
        rest = values["opaque"]
    else:
        user = f"{values['userinfo']}@" if values["userinfo"] else ""
        path = urllib.parse.quote(values["path"], safe="/:@!$&'()*+,;=-._~")
        if values["scheme"] or values["host"] or user:
            host = f"//{user}{values['host']}" if values["host"] or path or user else ""
            rest = host + (f"/{path}" if path and not path.startswith("/") and values["host"] else path)
        else:
            rest = path
    query = f"?{values['query']}" if values["query"] else ""
    fragment = f"#{urllib.parse.quote(values['fragment'], safe=_IN_FRAGMENT)}" if values["fragment"] else ""
    return scheme + rest + query + fragment


_IN_FRAGMENT = "/?:@!$&'()*+,;=-._~"


def _text(parts: dict[str, Any], name: str) -> str:
    value = parts.get(name, "")
    if not isinstance(value, str):
        raise ValueError(f"unable to parse {name} key, must be of type string, but {kind_name(value)} found")
    return value


URLS: dict[str, Function] = {"urlParse": takes("string", parse), "urlJoin": takes("map", join)}

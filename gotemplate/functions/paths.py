"""Sprig's functions for paths and the environment. https://masterminds.github.io/sprig/paths.html, …/os.html"""

from __future__ import annotations

import os
import posixpath
import re
import socket

from gotemplate.function import Function, takes


def clean(path: str) -> str:
    """Return the shortest equivalent path."""
    normal = posixpath.normpath(path) if path else "."
    return "/" + normal.lstrip("/") if normal.startswith("//") else normal


def base(path: str) -> str:
    """Return the last element of a path, or "." if it is empty."""
    if not path:
        return "."
    return posixpath.basename(path.rstrip("/")) or "/"


def folder(path: str) -> str:
    """Return the path without its last element."""
    return clean(path[: path.rfind("/") + 1])


def extension(path: str) -> str:
    """Return the file name extension, including the dot."""
    name = path[path.rfind("/") + 1 :]
    return name[name.rfind(".") :] if "." in name else ""


def expand(text: str) -> str:
    """Replace $NAME and ${NAME} with the values of environment variables."""
    return re.sub(r"\$(?:\{(\w+)\}|([*#$@!?0-9-]|\w+))", lambda match: os.environ.get(match[1] or match[2], ""), text)


def address(name: str) -> str:
    """Return an IPv4 address of a host name, or "" if it cannot be resolved."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


_PATHS = {
    "base": takes("string", base),
    "dir": takes("string", folder),
    "clean": takes("string", clean),
    "ext": takes("string", extension),
    "isAbs": takes("string", lambda path: path.startswith("/")),
}
PATHS: dict[str, Function] = {
    **_PATHS,
    **{f"os{name[0].upper()}{name[1:]}": function for name, function in _PATHS.items()},
    "env": takes("string", lambda name: os.environ.get(name, "")),
    "expandenv": takes("string", expand),
    "getHostByName": takes("string", address),
}

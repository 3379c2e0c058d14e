"""Functions of paths, and of the environment. https://masterminds.github.io/sprig/paths.html, …/os.html"""

from __future__ import annotations

import os
import posixpath
import re
import socket

from gotemplate.function import Function, takes


def clean(path: str) -> str:
    """Returns the shortest path that says the same."""
    found = posixpath.normpath(path) if path else "."
    return "/" + found.lstrip("/") if found.startswith("//") else found


def base(path: str) -> str:
    """Returns the last part of a path, "." of an empty one."""
    if not path:
        return "."
    return posixpath.basename(path.rstrip("/")) or "/"


def folder(path: str) -> str:
    """Returns the path without its last part."""
    return clean(path[: path.rfind("/") + 1])


def extension(path: str) -> str:
    """Returns what follows the last point of the last part, with the point."""
    name = path[path.rfind("/") + 1 :]
    return name[name.rfind(".") :] if "." in name else ""


def expand(text: str) -> str:
    """Returns the text with $NAME and ${NAME} replaced by the variables of the environment."""
    return re.sub(r"\$(?:\{(\w+)\}|([*#$@!?0-9-]|\w+))", lambda found: os.environ.get(found[1] or found[2], ""), text)


def address(name: str) -> str:
    """Returns an address of a host, "" where there is none."""
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

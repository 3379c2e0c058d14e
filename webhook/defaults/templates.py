"""The default injection templates. Each template includes the parts that it calls, so that it is self-contained in a
ConfigMap."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

_CALL = re.compile(r'\btemplate "([\w-]+)"')
_DEFINITION = re.compile(r'\bdefine "([\w-]+)"')
NAMES = ("sidecar", "gateway", "grpc-simple", "grpc-agent", "waypoint", "kube-gateway")


@functools.cache
def default_templates() -> dict[str, str]:
    """Return the default templates, keyed by name."""
    parts = _parts()
    return {name: _with_parts(_read("templates", f"{name}.yaml"), parts) for name in NAMES}


def _parts() -> dict[str, str]:
    """Return a mapping from the name of each part to the content of the file that defines it."""
    parts = {}
    for path in sorted((files(__package__) / "parts").iterdir(), key=lambda p: p.name):
        text = path.read_text("utf-8").rstrip("\n")
        parts.update(dict.fromkeys(_DEFINITION.findall(text), text))
    return parts


def _with_parts(text: str, parts: dict[str, str]) -> str:
    """Return a template preceded by the parts that it needs. Each part is included once, after its own dependencies."""
    needed: dict[str, None] = {}

    def gather(called: str) -> None:
        for name in _CALL.findall(called):
            if (part := parts[name]) not in needed:
                if part != called:
                    gather(part)
                needed[part] = None

    gather(text)
    return "\n".join([*needed, text])


def _read(*path: str) -> str:
    return files(__package__).joinpath(*path).read_text("utf-8")

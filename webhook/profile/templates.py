"""The default templates. Each is one text with the parts that it calls before it, so that it can stand alone in a ConfigMap."""

from __future__ import annotations

import functools
import re
from importlib.resources import files

_CALL = re.compile(r'\btemplate "([\w-]+)"')
_DEFINITION = re.compile(r'\bdefine "([\w-]+)"')
NAMES = ("sidecar", "gateway", "grpc-simple", "grpc-agent", "waypoint", "kube-gateway")


@functools.cache
def default_templates() -> dict[str, str]:
    """Returns the text of each default template by its name."""
    parts = _parts()
    return {name: _with_parts(_read("templates", f"{name}.yaml"), parts) for name in NAMES}


def _parts() -> dict[str, str]:
    """Returns the file of each defined part, by the part's name."""
    found = {}
    for path in sorted((files(__package__) / "parts").iterdir(), key=lambda p: p.name):
        text = path.read_text("utf-8").rstrip("\n")
        found.update(dict.fromkeys(_DEFINITION.findall(text), text))
    return found


def _with_parts(text: str, parts: dict[str, str]) -> str:
    """Returns a text after the parts that it needs, those first that others need; each once."""
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

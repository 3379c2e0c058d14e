"""Finds types of messages by their names, among all that the installed packages have: a module is loaded when its type is first asked for."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from typing import Any

from google.protobuf import descriptor_pool, message_factory

_ROOTS = frozenset(("cel", "envoy", "google", "opencensus", "opentelemetry", "udpa", "xds"))
"""The top of packages that may be loaded: a name comes from a user, and importing runs code."""
_OWN = ("protos.alpn_pb2", "protos.mysql_proxy_pb2")
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


@functools.lru_cache(maxsize=4096)
def find_type(name: str) -> type[Any] | None:
    """Returns the class of the messages with a full name such as `envoy.config.cluster.v3.Cluster`; None for one that nobody defines."""
    if not _NAME.fullmatch(name):
        return None
    found = _pooled(name)
    if found is None:
        _load(name)
        found = _pooled(name)
    return found


def _pooled(name: str) -> type[Any] | None:
    try:
        return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    except KeyError:
        return None


def _load(name: str) -> None:
    """Imports the modules of the package that a message would be in."""
    for module in _OWN:
        importlib.import_module(module)
    parts = name.split(".")
    if parts[0] not in _ROOTS:
        return
    for length in range(len(parts) - 1, 1, -1):  # a message may be nested in others
        try:
            package = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for _, found, _ in pkgutil.iter_modules(getattr(package, "__path__", ())):
            if found.endswith("_pb2"):
                importlib.import_module(f"{package.__name__}.{found}")
        return


def name_in(type_url: str) -> str:
    """Returns the full name of the message that a type URL names."""
    return type_url.rpartition("/")[2]

"""Finds message types by name in all installed packages.

A module is imported when one of its types is first used.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from typing import Any

from google.protobuf import descriptor_pool, message_factory

from pilot.lib.suggestion import closest

_ROOTS = frozenset(("cel", "envoy", "google", "opencensus", "opentelemetry", "udpa", "xds"))
"""Top-level packages that may be imported. Type names come from users, and importing a module runs its code."""
_OWN = ("protos.alpn_pb2", "protos.mysql_proxy_pb2")
_MAX_PARTS = 12
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)


@functools.lru_cache(maxsize=4096)
def find_type(name: str) -> type[Any] | None:
    """Return the class of the message with a full name, such as `envoy.config.cluster.v3.Cluster`, or None if it is
    unknown."""
    if not _NAME.fullmatch(name):
        return None
    message_class = _pooled(name)
    if message_class is None:
        _load(name)
        message_class = _pooled(name)
    return message_class


def _pooled(name: str) -> type[Any] | None:
    try:
        return message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName(name))
    except KeyError:
        return None


def _load(name: str) -> None:
    """Import the modules of the package that would define a message with this name."""
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
        for _, module, _ in pkgutil.iter_modules(getattr(package, "__path__", ())):
            if module.endswith("_pb2"):
                importlib.import_module(f"{package.__name__}.{module}")
        return


def similar_type(name: str) -> str:
    """Return the known message name that is most similar to an unknown one, or "" if none is similar."""
    if not _NAME.fullmatch(name) or name.count(".") > _MAX_PARTS:
        return ""
    package, *parts = name.split(".")
    if package not in _ROOTS:
        return ""
    for part in parts[:-1]:
        packages = _packages(package)
        only = packages[0] if len(packages) == 1 else ""  # the version of an API, for another version
        child = part if part in packages else closest(part, packages) or only
        if not child:
            return ""
        package = f"{package}.{child}"
    messages = _messages(package)
    contained = (message for message in messages if message in parts[-1])
    message = closest(parts[-1], messages) or max(contained, key=len, default="")
    return f"{package}.{message}" if message else ""


@functools.cache  # bounded by the number of packages
def _packages(package: str) -> tuple[str, ...]:
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return tuple(name for _, name, is_package in modules if is_package)


@functools.cache
def _messages(package: str) -> tuple[str, ...]:
    """Return the names of the messages that a package defines at the top level."""
    modules = pkgutil.iter_modules(importlib.import_module(package).__path__)
    files = (importlib.import_module(f"{package}.{name}") for _, name, _ in modules if name.endswith("_pb2"))
    return tuple(message for file in files for message in file.DESCRIPTOR.message_types_by_name)


def name_in(type_url: str) -> str:
    """Return the full name of the message in a type URL."""
    return type_url.rpartition("/")[2]

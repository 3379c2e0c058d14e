"""Remarks about the connected proxies, for messages about a name or a namespace that none of them has."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pilot.lib.suggestion import did_you_mean

_LISTED, _COMPARED = 5, 1000
"""Maximum numbers of names that a remark lists, and that are compared with a name."""
_POD = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
Connections = Mapping[str, Any]
"""The debug page connections."""


def proxy_names(connections: Connections) -> list[str]:
    """Return the IDs of the connected proxies."""
    return [client["connectionId"].rpartition("-")[0] for client in connections.get("clients", ())]


def list_proxies(names: Sequence[str]) -> str:
    """Return a remark with the first connected proxies."""
    return f"; connected proxies: {_some(names)}" if names else "; no proxies are connected"


def describe_missing_proxy(name: str, namespace: str, connections: Connections) -> str:
    """Return a remark on a name that no connected proxy has: the proxy that may be meant, or else what to look at."""
    names = proxy_names(connections)
    full_name = f"{name}.{namespace}" if namespace and not name.endswith(f".{namespace}") else name
    if suggestion := did_you_mean(full_name, names[:_COMPARED]):
        return f"{suggestion}{list_proxies(names)}"
    pod = full_name if _POD.fullmatch(full_name) else "POD.NAMESPACE"
    return (
        f"{list_proxies(names)}; pilotctl check-inject {pod} shows whether the Pod is injected, "
        "and --address selects another control plane"
    )


def describe_missing_namespace(namespace: str, connections: Connections) -> str:
    """Return a remark on a namespace, if no proxies are in it but in others: the one that may be meant, and some."""
    namespaces = sorted({name.rpartition(".")[2] for name in proxy_names(connections)})
    if not namespaces or namespace in namespaces:
        return ""
    return f"{did_you_mean(namespace, namespaces[:_COMPARED])}; namespaces with proxies: {_some(namespaces)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"

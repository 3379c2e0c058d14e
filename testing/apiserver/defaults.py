"""What an API server writes into objects of its own kinds where their authors say nothing, as far as clients rely on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testing.apiserver.request_info import Asked
from testing.apiserver.store import Plain

_SPEC: Mapping[str, Mapping[str, Any]] = {
    "Deployment": {"replicas": 1},
    "StatefulSet": {"replicas": 1},
    "ReplicaSet": {"replicas": 1},
    "HorizontalPodAutoscaler": {"minReplicas": 1},
}


async def default(asked: Asked, old: Plain | None, new: Plain | None) -> Plain | None:
    """Return an object with the defaults of its kind."""
    defaults = _SPEC.get(asked.resource.kind)
    if new is None or not defaults or asked.subresource:
        return new
    return {**new, "spec": {**defaults, **(new.get("spec") or {})}}

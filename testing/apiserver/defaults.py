"""Defaults that the API server sets in objects of built-in kinds, as far as clients rely on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testing.apiserver.request_info import RequestInfo
from testing.apiserver.store import Plain

_SPEC: Mapping[str, Mapping[str, Any]] = {
    "Deployment": {"replicas": 1},
    "StatefulSet": {"replicas": 1},
    "ReplicaSet": {"replicas": 1},
    "HorizontalPodAutoscaler": {"minReplicas": 1},
}


async def default(info: RequestInfo, old: Plain | None, new: Plain | None) -> Plain | None:
    """Return the object with the defaults of its kind."""
    defaults = _SPEC.get(info.resource.kind)
    if new is None or not defaults or info.subresource:
        return new
    return {**new, "spec": {**defaults, **(new.get("spec") or {})}}

"""Records in an annotation what was injected, and removes an earlier injection."""

from __future__ import annotations

from typing import Any

import msgspec

from webhook.inject.annotations import STATUS
from webhook.inject.containers import containers

Plain = dict[str, Any]
_LISTS = ("initContainers", "containers", "volumes", "imagePullSecrets")


def status_of(template: Plain, revision: str) -> str:
    """Return the value of the annotation. It contains the revision. For each list of the Pod, it also contains the
    names that the templates add, or null if they add none."""
    names = {field: [item.get("name", "") for item in containers(template, field)] or None for field in _LISTS}
    return msgspec.json.encode({**names, "revision": revision or "default"}).decode()


def injected_before(pod: Plain) -> dict[str, Any] | None:
    """Return the status of an earlier injection, or None if the annotation is absent or invalid."""
    text = ((pod.get("metadata") or {}).get("annotations") or {}).get(STATUS)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return None


def stripped(pod: Plain, is_ours: Any) -> Plain:
    """Return the Pod without the containers and the annotation of an earlier injection.

    Annotations for which `is_ours` is true are removed, too.
    """
    before = injected_before(pod)
    if before is None:
        return pod
    spec = dict(pod.get("spec") or {})
    for field in ("containers", "initContainers"):
        if containers(pod, field):
            spec[field] = [c for c in containers(pod, field) if c.get("name") not in (before.get(field) or ())]
    annotations = {k: v for k, v in pod["metadata"]["annotations"].items() if k != STATUS and not is_ours(k)}
    return {**pod, "metadata": {**pod["metadata"], "annotations": annotations}, "spec": spec}

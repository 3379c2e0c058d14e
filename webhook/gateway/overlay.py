"""What ConfigMaps lay over the objects of a Gateway, by strategic merge; none of them can make an object another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pilot.ingest.documents import SyntaxFault, read_documents
from webhook.pod.merge import MergeError, merge
from webhook.pod.schema import TYPES

Plain = dict[str, Any]
OVERLAYS = {
    "deployment": "Deployment",
    "service": "Service",
    "serviceAccount": "ServiceAccount",
    "horizontalPodAutoscaler": "HorizontalPodAutoscaler",
    "podDisruptionBudget": "PodDisruptionBudget",
}
"""Keys of the ConfigMaps, and the kinds that they are laid over."""
ASKED_FOR = ("HorizontalPodAutoscaler", "PodDisruptionBudget")
"""Kinds that are there only where something is laid over them."""
_IDENTITY = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "selfLink",
)


class OverlayError(ValueError):
    """A ConfigMap cannot be laid over an object. The text says why."""


def lay_over(found: Plain, overlays: Iterable[Mapping[str, str]]) -> Plain | None:
    """Returns an object with what each ConfigMap says of its kind merged into it; None where it is there only if one does, and none does.
    OverlayError where a ConfigMap has a key that is not known, cannot be read, or would make the object another one."""
    kind, made, laid = found["kind"], found, False
    for data in overlays:
        for key, text in data.items():
            if key not in OVERLAYS:
                raise OverlayError(f"unsupported overlay {key!r} (supported: {', '.join(sorted(OVERLAYS))})")
            if OVERLAYS[key] == kind:
                made, laid = _merged(made, text, key), True
    if not laid and kind in ASKED_FOR:
        return None
    refuse_another(found, made)
    return made


def _merged(found: Plain, text: str, key: str) -> Plain:
    try:
        documents = read_documents(text.encode(), "")
        patch = documents[0].plain if documents else {}
        if not isinstance(patch or {}, dict) or len(documents) > 1:
            raise OverlayError(f"overlay {key!r} is no mapping")
        return merge(found, patch or {}, TYPES.get(found["kind"]))
    except (SyntaxFault, MergeError) as fault:
        raise OverlayError(f"overlay {key!r}: {fault}") from fault


def refuse_another(before: Plain, after: Plain) -> None:
    """Raises OverlayError where what is laid over an object has made it another one."""
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    changed = [name for name in ("apiVersion", "kind") if before.get(name) != after.get(name)]
    changed += [f"metadata.{name}" for name in _IDENTITY if not isinstance(new, dict) or old.get(name) != new.get(name)]
    if changed:
        raise OverlayError(f"an overlay may not change {changed[0]}")

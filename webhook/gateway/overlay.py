"""Merges overlays from ConfigMaps into the objects of a Gateway. An overlay cannot change an object's identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pilot.ingest.files.documents import SyntaxFault, read_documents
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
"""Mapping from ConfigMap keys to kinds."""
ASKED_FOR = ("HorizontalPodAutoscaler", "PodDisruptionBudget")
"""Kinds that are deployed only if an overlay exists."""
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
    """An overlay cannot be applied."""


def lay_over(rendered: Plain, overlays: Iterable[Mapping[str, str]]) -> Plain | None:
    """Return an object with the overlays for its kind merged into it.

    Return None if the kind is deployed only with an overlay and there is none. Raise OverlayError if an overlay has an
    unsupported key, cannot be parsed, or changes the object's identity.
    """
    kind, merged, is_overlaid = rendered["kind"], rendered, False
    for data in overlays:
        for key, text in data.items():
            if key not in OVERLAYS:
                raise OverlayError(f"unsupported overlay {key!r} (supported: {', '.join(sorted(OVERLAYS))})")
            if OVERLAYS[key] == kind:
                merged, is_overlaid = _merged(merged, text, key), True
    if not is_overlaid and kind in ASKED_FOR:
        return None
    refuse_another(rendered, merged)
    return merged


def _merged(rendered: Plain, text: str, key: str) -> Plain:
    try:
        documents = read_documents(text.encode(), "", allow_aliases=False)
        patch = documents[0].plain if documents else {}
        if not isinstance(patch or {}, dict) or len(documents) > 1:
            raise OverlayError(f"overlay {key!r} must be a mapping")
        return merge(rendered, patch or {}, TYPES.get(rendered["kind"]))
    except (SyntaxFault, MergeError) as fault:
        raise OverlayError(f"overlay {key!r}: {fault}") from fault


def refuse_another(before: Plain, after: Plain) -> None:
    """Raise OverlayError if an overlay changed the identity of an object."""
    old, new = before.get("metadata") or {}, after.get("metadata") or {}
    changed = [name for name in ("apiVersion", "kind") if before.get(name) != after.get(name)]
    changed += [f"metadata.{name}" for name in _IDENTITY if not isinstance(new, dict) or old.get(name) != new.get(name)]
    if changed:
        raise OverlayError(f"an overlay must not change {changed[0]}")

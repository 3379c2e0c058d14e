"""The finalizer of IstioOperators: they stay until what they installed is gone, and only as long as there is an operator that takes it away."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from pilot.install.tag_webhooks import NAMESPACE
from pilot.kube.errors import Conflict, NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind
from pilot.operator.istio_operator_resource import FINALIZER, KIND, IstioOperatorResource, istio_operator_of

_DEPLOYMENT = VersionedKind("apps/v1", "Deployment")
_TRIES = 10


async def hold(objects: ObjectClient, custom: IstioOperatorResource) -> None:
    """Adds the finalizer. KubeError where that is refused."""
    if FINALIZER not in custom.finalizers:
        await _change(objects, custom.key, lambda found: found if FINALIZER in found else [*found, FINALIZER])


async def release(objects: ObjectClient, key: ResourceKey) -> None:
    """Removes the finalizer; nothing happens where the object is gone. KubeError where that is refused."""
    with contextlib.suppress(NotFound):
        await _change(objects, key, lambda found: [each for each in found if each != FINALIZER])


async def _change(objects: ObjectClient, key: ResourceKey, change: Any) -> None:
    for attempt in range(_TRIES):
        plain = await objects.get(key)
        if plain is None:
            return
        found = list(plain["metadata"].get("finalizers") or ())
        wanted = change(found)
        if wanted == found:
            return
        if plain["metadata"].get("deletionTimestamp") and FINALIZER in wanted:  # nothing may be added any more
            return
        try:
            await objects.patch(
                key, {"metadata": {"finalizers": wanted, "resourceVersion": plain["metadata"]["resourceVersion"]}}
            )
            return
        except Conflict:
            if attempt == _TRIES - 1:
                raise


async def remove_all_finalizers(
    objects: ObjectClient, namespaces: Sequence[str] | None, revision: str
) -> list[ResourceKey]:
    """Removes the finalizer of every IstioOperator that an operator looks after; returns which they were. KubeError where that is refused."""
    found = []
    for namespace in [""] if namespaces is None else namespaces:
        found += [istio_operator_of(plain) for plain in await objects.list(KIND, namespace=namespace)]
    held = [
        custom.key
        for custom in found
        if FINALIZER in custom.finalizers and (not revision or custom.revision == revision)
    ]
    for key in held:
        await release(objects, key)
    return held


async def is_operator_removed(objects: ObjectClient, namespace: str, deployment: str) -> bool:
    """Returns whether the operator itself is taken away, and not only this pod of it: its Deployment, or the namespace, is gone or going, or there
    are to be no replicas. KubeError where that cannot be asked."""
    there = await objects.get(ResourceKey(NAMESPACE, "", namespace))
    if there is None or there["metadata"].get("deletionTimestamp"):
        return True
    found = await objects.get(ResourceKey(_DEPLOYMENT, namespace, deployment))
    return (
        found is None
        or bool(found["metadata"].get("deletionTimestamp"))
        or (found.get("spec") or {}).get("replicas") == 0
    )

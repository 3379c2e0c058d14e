"""Deletion of IstioOperators: their finalizer, and the deletion of the objects that they installed.

The finalizer keeps an IstioOperator until its objects have been deleted. When the operator itself is uninstalled, it
removes all finalizers, because nothing else would remove them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence

from pilot.install.installation_labels import COMPONENT, OWNER, OWNER_NAMESPACE, REVISION, TAG
from pilot.install.prune import DEFINITION, list_installed
from pilot.install.tag_webhooks import NAMESPACE
from pilot.install.uninstallation import is_shared, proxy_warnings
from pilot.kube.api_errors import Conflict, NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind, resource_key
from pilot.operator.istio_operator_resource import FINALIZER, KIND, IstioOperatorResource, istio_operator_of
from pilot.operator.operator_context import OperatorContext

_DEPLOYMENT = VersionedKind("apps/v1", "Deployment")
_MAX_ATTEMPTS = 10


async def delete_installation(
    context: OperatorContext, resource: IstioOperatorResource, pending: Collection[ResourceKey]
) -> str:
    """Delete the objects that only this IstioOperator installs.

    If proxies are still connected to its revision, delete nothing and return a message. Definitions are never deleted.
    Shared objects are not deleted if the IstioOperator has a revision. `pending` are objects whose drift is not
    corrected yet. Their labels may be missing. Raises KubeError.
    """
    selector = f"{COMPONENT},{OWNER}={resource.name},{OWNER_NAMESPACE}={resource.namespace}"
    owned = installed = await list_installed(context.objects, selector, context.namespaces)
    if resource.revision:
        installed = [plain for plain in installed if not is_shared(plain)]
        warnings = await proxy_warnings(context.objects, resource.revision) if installed else []
        if warnings:
            return warnings[0]
    keep = context.desired_by_others(resource.key)
    revisions = {
        plain["metadata"]["labels"].get(REVISION)
        for plain in installed
        if plain["kind"] == "MutatingWebhookConfiguration"
    }
    for revision in sorted(filter(None, revisions)):
        installed += await list_installed(context.objects, f"{TAG},{REVISION}={revision}", ())
    for plain in installed:
        if resource_key(plain) not in keep:
            await context.objects.delete(resource_key(plain))
    for key in () if resource.revision else pending:
        if key not in keep and key.kind != DEFINITION:
            await context.objects.delete(key)
    context.transfer([resource_key(plain) for plain in owned], resource.key)
    return ""


async def add_finalizer(objects: ObjectClient, resource: IstioOperatorResource) -> None:
    """Add the finalizer. Raises KubeError."""
    if FINALIZER not in resource.finalizers:
        await _change_finalizers(
            objects,
            resource.key,
            lambda finalizers: finalizers if FINALIZER in finalizers else [*finalizers, FINALIZER],
        )


async def remove_finalizer(objects: ObjectClient, key: ResourceKey) -> None:
    """Remove the finalizer. Do nothing if the object does not exist. Raises KubeError."""
    with contextlib.suppress(NotFound):
        await _change_finalizers(
            objects, key, lambda finalizers: [finalizer for finalizer in finalizers if finalizer != FINALIZER]
        )


async def _change_finalizers(objects: ObjectClient, key: ResourceKey, change: Callable[[list[str]], list[str]]) -> None:
    for attempt in range(_MAX_ATTEMPTS):
        plain = await objects.get(key)
        if plain is None:
            return
        before = list(plain["metadata"].get("finalizers") or ())
        after = change(before)
        if after == before:
            return
        # The API server rejects new finalizers of a deleted object.
        if plain["metadata"].get("deletionTimestamp") and FINALIZER in after:
            return
        try:
            await objects.patch(
                key, {"metadata": {"finalizers": after, "resourceVersion": plain["metadata"]["resourceVersion"]}}
            )
            return
        except Conflict:
            if attempt == _MAX_ATTEMPTS - 1:
                raise


async def remove_all_finalizers(
    objects: ObjectClient, namespaces: Sequence[str] | None, revision: str
) -> list[ResourceKey]:
    """Remove the finalizer from all IstioOperators that an operator manages, and return their keys.

    Raises KubeError.
    """
    resources = []
    for namespace in [""] if namespaces is None else namespaces:
        resources += [istio_operator_of(plain) for plain in await objects.list(KIND, namespace=namespace)]
    keys = [
        resource.key
        for resource in resources
        if FINALIZER in resource.finalizers and (not revision or resource.revision == revision)
    ]
    for key in keys:
        await remove_finalizer(objects, key)
    return keys


async def is_operator_removed(objects: ObjectClient, namespace: str, deployment: str) -> bool:
    """Return whether the operator is being uninstalled. If only this pod is being replaced, return False.

    An operator is being uninstalled if its Deployment or namespace is deleted, or if it is scaled to zero replicas.
    Raises KubeError.
    """
    namespace_object = await objects.get(ResourceKey(NAMESPACE, "", namespace))
    if namespace_object is None or namespace_object["metadata"].get("deletionTimestamp"):
        return True
    deployment_object = await objects.get(ResourceKey(_DEPLOYMENT, namespace, deployment))
    return (
        deployment_object is None
        or bool(deployment_object["metadata"].get("deletionTimestamp"))
        or (deployment_object.get("spec") or {}).get("replicas") == 0
    )

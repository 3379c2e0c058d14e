"""Listing and pruning of installed objects, which are identified by labels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pilot.install.installation_labels import NOT_PRUNED
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]
_RBAC, _ADMISSION = "rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1"
CLUSTER_KINDS = (
    VersionedKind(_ADMISSION, "MutatingWebhookConfiguration"),
    VersionedKind(_ADMISSION, "ValidatingWebhookConfiguration"),
    VersionedKind(_ADMISSION, "ValidatingAdmissionPolicyBinding"),
    VersionedKind(_ADMISSION, "ValidatingAdmissionPolicy"),
    VersionedKind(_RBAC, "ClusterRoleBinding"),
    VersionedKind(_RBAC, "ClusterRole"),
)
NAMESPACED_KINDS = (
    VersionedKind("autoscaling/v2", "HorizontalPodAutoscaler"),
    VersionedKind("policy/v1", "PodDisruptionBudget"),
    VersionedKind("v1", "Service"),
    VersionedKind("discovery.k8s.io/v1", "EndpointSlice"),
    VersionedKind("apps/v1", "Deployment"),
    VersionedKind("apps/v1", "DaemonSet"),
    VersionedKind("networking.istio.io/v1alpha3", "EnvoyFilter"),
    VersionedKind("networking.k8s.io/v1", "NetworkPolicy"),
    VersionedKind("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition"),
    VersionedKind("v1", "ResourceQuota"),
    VersionedKind("v1", "ConfigMap"),
    VersionedKind(_RBAC, "RoleBinding"),
    VersionedKind(_RBAC, "Role"),
    VersionedKind("v1", "ServiceAccount"),
)
"""Kinds of installed objects in deletion order. Webhooks are deleted before the control plane that they call."""
DEFINITION = VersionedKind("apiextensions.k8s.io/v1", "CustomResourceDefinition")


async def list_installed(
    objects: ObjectClient, selector: str, namespaces: Sequence[str] | None = None, kinds: Sequence[VersionedKind] = ()
) -> list[Plain]:
    """Return the objects that match a label selector, in deletion order.

    `namespaces` restricts namespaced objects. None means all namespaces. `kinds` are additional cluster-scoped kinds.
    Objects with owner references are omitted, because they are garbage-collected with their owners.
    """
    installed: list[Plain] = []
    for kind in (*CLUSTER_KINDS, *(NAMESPACED_KINDS if namespaces is None else ()), *kinds):
        installed += await objects.list(kind, selector)
    if namespaces is not None:
        for kind in NAMESPACED_KINDS:
            for namespace in namespaces:
                installed += await objects.list(kind, selector, namespace)
    return [plain for plain in installed if not plain["metadata"].get("ownerReferences")]


async def prune(
    objects: ObjectClient, selector: str, keep: Collection[ResourceKey], namespaces: Sequence[str] | None = None
) -> list[ResourceKey]:
    """Delete the objects that match a label selector, except those in `keep`, and return the keys of the deleted
    objects.

    CustomResourceDefinitions and objects with a label that forbids pruning are never deleted.
    """
    pruned = []
    for plain in await list_installed(objects, selector, namespaces):
        key = resource_key(plain)
        if key not in keep and plain["metadata"]["labels"].get(NOT_PRUNED) != "true" and await objects.delete(key):
            pruned.append(key)
    return pruned

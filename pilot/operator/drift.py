"""Objects that were installed, followed: whoever changes or deletes one is noticed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import msgspec

from pilot.install.installation_labels import MANAGED
from pilot.install.object_readiness import WORKLOADS
from pilot.install.prune import CLUSTER_KINDS, DEFINITION, NAMESPACED_KINDS
from pilot.kube.client import ApiClient
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.object_client import ObjectClient, ResourceKey, UnknownKind, VersionedKind
from pilot.kube.wire import ObjectChange
from pilot.operator.applied_objects import Changed

_OF_OTHERS = ("EnvoyFilter", "NetworkAttachmentDefinition", "EndpointSlice")
"""Kinds that are not in every cluster, or that others have many of."""


async def followers(
    objects: ObjectClient,
    client: ApiClient,
    namespaces: Sequence[str] | None,
    changed: Changed,
    pace: WatchOptions,
    choose: random.Random,
) -> list[Informer]:
    """Returns what follows the installed objects, in these namespaces or in all, and those of the cluster. KubeError where the server cannot be
    asked which kinds it has."""
    found = []
    for kind, namespace in _collections(namespaces):
        try:
            path = await objects.collection(kind, namespace)
        except UnknownKind:
            continue
        collection = WatchedCollection(path, f"{MANAGED}=Reconcile", metadata_only=kind.name not in WORKLOADS)
        found.append(Informer(client, collection, _receiver(kind, changed), pace, choose))
    return found


def _collections(namespaces: Sequence[str] | None) -> Iterator[tuple[VersionedKind, str]]:
    for kind in (*CLUSTER_KINDS, DEFINITION):
        yield kind, ""
    for kind in NAMESPACED_KINDS:
        if kind.name not in _OF_OTHERS:
            yield from ((kind, namespace) for namespace in ([""] if namespaces is None else namespaces))


def _receiver(kind: VersionedKind, changed: Changed) -> Receive:
    async def receive(changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            key = ResourceKey(kind, change.name.namespace, change.name.name)
            changed(
                key,
                None
                if change.raw is None
                else {**msgspec.json.decode(change.raw), "apiVersion": kind.api_version, "kind": kind.name},
            )

    return receive

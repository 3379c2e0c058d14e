"""Objects that were installed, followed: whoever changes or deletes one is noticed."""
from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pilot.install.labels import MANAGED
from pilot.install.prune import CLUSTER_KINDS, DEFINITION, NAMESPACED_KINDS
from pilot.install.ready import WORKLOADS
from pilot.kube.client import ApiClient
from pilot.kube.follow import FollowedCollection, Follower, Pace, Receive
from pilot.kube.objects import Key, Objects, Plain, Retry, UnknownKind, VersionedKind, key_of
from pilot.kube.wire import ObjectChange

_OF_OTHERS = ("EnvoyFilter", "NetworkAttachmentDefinition", "EndpointSlice")
"""Kinds that are not in every cluster, or that others have many of."""
_OF_CONTROLLER = "deployment.kubernetes.io/"
Changed = Callable[[Key, Plain | None], None]


def fingerprint(plain: Plain) -> Any:
    """Returns what of an object is something else after a change that could matter, which one of its status does not."""
    metadata = plain["metadata"]
    generation = metadata.get("generation")
    if generation is None or plain["kind"] in ("Service", "ServiceAccount"):
        return metadata.get("resourceVersion")
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if not key.startswith(_OF_CONTROLLER)}
    return generation, metadata.get("labels"), annotations


class NotedObjects(Objects):
    """Objects that are remembered as they were when they were applied last, in `seen`."""

    def __init__(self, client: ApiClient, manager: str, choose: random.Random, retry: Retry) -> None:
        super().__init__(client, manager, choose, retry=retry)
        self.seen: dict[Key, Any] = {}

    async def apply(self, plain: Plain) -> Plain:
        found = await super().apply(plain)
        self.seen[key_of(plain)] = fingerprint(found)
        return found

    def is_known(self, key: Key, plain: Plain) -> bool:
        """Returns whether an object is as it was applied."""
        return key in self.seen and self.seen[key] == fingerprint(plain)


async def followers(
    objects: Objects, client: ApiClient, namespaces: Sequence[str] | None, changed: Changed, pace: Pace, choose: random.Random
) -> list[Follower]:
    """Returns what follows the installed objects, in these namespaces or in all, and those of the cluster. KubeError where the server cannot be
    asked which kinds it has."""
    found = []
    for kind, namespace in _collections(namespaces):
        try:
            path = await objects.collection(kind, namespace)
        except UnknownKind:
            continue
        collection = FollowedCollection(path, f"{MANAGED}=Reconcile", metadata_alone=kind.name not in WORKLOADS)
        found.append(Follower(client, collection, _receiver(kind, changed), pace, choose))
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
            key = Key(kind, change.name.namespace, change.name.name)
            changed(key, None if change.raw is None else {**msgspec.json.decode(change.raw), "apiVersion": kind.api_version, "kind": kind.name})

    return receive

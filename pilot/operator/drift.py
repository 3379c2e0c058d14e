"""Detection of drift, which is any change of an installed object by another client."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from pilot.install.installation_labels import MANAGED
from pilot.install.object_readiness import WORKLOADS
from pilot.install.prune import CLUSTER_KINDS, DEFINITION, NAMESPACED_KINDS
from pilot.kube.api_client import ApiClient
from pilot.kube.informer import Informer, Receive, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.kube.object_client import (
    ObjectClient,
    Plain,
    ResourceKey,
    RetryPolicy,
    UnknownKind,
    VersionedKind,
    resource_key,
)

ChangeHandler = Callable[[ResourceKey, Plain | None], None]
"""A function that receives an object that changed, or None if the object was deleted."""
_DEPLOYMENT_CONTROLLER = "deployment.kubernetes.io/"
_UNWATCHED = ("EnvoyFilter", "NetworkAttachmentDefinition", "EndpointSlice")
"""Kinds that are not watched, because some clusters do not have the kind or have many unrelated objects of it."""


def fingerprint(plain: Plain) -> Any:
    """Return a value that differs if the object differs. A change of only the status does not change the value."""
    metadata = plain["metadata"]
    generation = metadata.get("generation")
    if generation is None or plain["kind"] in ("Service", "ServiceAccount"):
        return metadata.get("resourceVersion")
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if not key.startswith(_DEPLOYMENT_CONTROLLER)
    }
    return generation, metadata.get("labels"), annotations


class AppliedObjects(ObjectClient):
    """A client that records the fingerprint of each applied object, to distinguish its own changes from those of
    others.

    A watch event can arrive before or after the response to the apply request that caused it. While an object is being
    applied, `defer` therefore holds back its events. They are passed to `on_change` after the response. A cancelled
    request has `response_timeout` seconds to complete.
    """

    def __init__(
        self,
        client: ApiClient,
        manager: str,
        rng: random.Random,
        retry: RetryPolicy,
        on_change: ChangeHandler,
        response_timeout: float = 5.0,
    ) -> None:
        super().__init__(client, manager, rng, retry=retry)
        self._on_change, self._response_timeout = on_change, response_timeout
        self._in_flight: Counter[ResourceKey] = Counter()
        self._deferred: dict[ResourceKey, Plain | None] = {}
        self.fingerprints: dict[ResourceKey, Any] = {}

    async def apply(self, plain: Plain) -> Plain:
        """Apply an object and return it.

        If cancelled, wait for the response before stopping. Otherwise, the API server could create the object after a
        later list request.
        """
        request = asyncio.create_task(self._apply(plain))
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            await asyncio.wait((request,), timeout=self._response_timeout)
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
            raise

    async def _apply(self, plain: Plain) -> Plain:
        key = resource_key(plain)
        self._in_flight[key] += 1
        try:
            applied = await super().apply(plain)
            self.fingerprints[key] = fingerprint(applied)
            return applied
        finally:
            self._in_flight[key] -= 1
            if not self._in_flight[key]:
                del self._in_flight[key]
                if key in self._deferred:
                    self._on_change(key, self._deferred.pop(key))

    def defer(self, key: ResourceKey, plain: Plain | None) -> bool:
        """Hold back a change of an object that is being applied. Return False if the object is not being applied."""
        if key not in self._in_flight:
            return False
        self._deferred[key] = plain
        return True

    def is_unchanged(self, key: ResourceKey, plain: Plain) -> bool:
        """Return whether an object equals the applied object, apart from its status."""
        return key in self.fingerprints and self.fingerprints[key] == fingerprint(plain)


async def installed_object_informers(
    objects: ObjectClient,
    client: ApiClient,
    namespaces: Sequence[str] | None,
    on_change: ChangeHandler,
    options: WatchOptions,
    rng: random.Random,
) -> list[Informer]:
    """Return informers for the installed objects in `namespaces` and for the cluster-scoped ones.

    If `namespaces` is None, the objects in all namespaces are watched. Raises KubeError if the kinds of the API server
    cannot be discovered.
    """
    informers = []
    for kind, namespace in _watched_collections(namespaces):
        try:
            path = await objects.collection(kind, namespace)
        except UnknownKind:
            continue
        collection = WatchedCollection(path, f"{MANAGED}=Reconcile", metadata_only=kind.name not in WORKLOADS)
        informers.append(Informer(client, collection, _receiver(kind, on_change), options, rng))
    return informers


def _watched_collections(namespaces: Sequence[str] | None) -> Iterator[tuple[VersionedKind, str]]:
    for kind in (*CLUSTER_KINDS, DEFINITION):
        yield kind, ""
    for kind in NAMESPACED_KINDS:
        if kind.name not in _UNWATCHED:
            yield from ((kind, namespace) for namespace in ([""] if namespaces is None else namespaces))


def _receiver(kind: VersionedKind, on_change: ChangeHandler) -> Receive:
    async def receive(changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            key = ResourceKey(kind, change.name.namespace, change.name.name)
            on_change(
                key,
                None
                if change.raw is None
                else {**msgspec.json.decode(change.raw), "apiVersion": kind.api_version, "kind": kind.name},
            )

    return receive

"""The objects that are deployed for Gateways, as the API server has them: which of them are as they were applied."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.kube.client import ApiClient
from pilot.kube.errors import NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.wire import NamespacedName, ObjectChange
from webhook.gateway.render import MANAGED, NAME_LABEL

APPLY_PATCH = "application/apply-patch+yaml"
Plain = dict[str, Any]
PATHS = {
    "Deployment": ("/apis/apps/v1", "deployments"),
    "DaemonSet": ("/apis/apps/v1", "daemonsets"),
    "Service": ("/api/v1", "services"),
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "HorizontalPodAutoscaler": ("/apis/autoscaling/v2", "horizontalpodautoscalers"),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets"),
}
FOLLOWED = ("Deployment", "Service", "ServiceAccount", "HorizontalPodAutoscaler", "PodDisruptionBudget")
_OF_SERVER = ("resourceVersion", "managedFields", "generation")


class DeployedPlace(NamedTuple):
    """One object."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        base, plural = PATHS[self.kind]
        return f"{base}/namespaces/{self.namespace}/{plural}/{self.name}"


class Applied(NamedTuple):
    """What was applied, and what came of it."""

    wanted: bytes
    found: bytes


class DeployedObjects:
    """Applies objects, and notices who else changes them: `changed` is told of the Gateway of such an object. `manager` is the name that owns
    the fields."""

    def __init__(
        self,
        client: ApiClient,
        manager: str,
        changed: Callable[[ObjectKey], None],
        pace: WatchOptions,
        choose: random.Random,
    ) -> None:
        self._client, self._manager, self._changed, self._pace, self._choose = client, manager, changed, pace, choose
        self._applied: dict[DeployedPlace, Applied] = {}
        self._there: dict[DeployedPlace, ObjectKey] = {}

    def followers(self) -> Iterator[Informer]:
        """Yields what follows the objects. What was known of them is forgotten."""
        self._applied, self._there = {}, {}
        for kind in FOLLOWED:
            base, plural = PATHS[kind]
            yield Informer(
                self._client,
                WatchedCollection(f"{base}/{plural}", MANAGED),
                self._receiver(kind),
                self._pace,
                self._choose,
            )

    def of(self, gateway: ObjectKey) -> list[DeployedPlace]:
        """Returns the objects that there are for a Gateway."""
        return [place for place, owner in self._there.items() if owner == gateway]

    async def apply(self, wanted: Plain) -> bool:
        """Has the server make an object what is wanted; returns False where one of that name is somebody else's."""
        metadata = wanted["metadata"]
        place, body = (
            DeployedPlace(wanted["kind"], metadata["namespace"], metadata["name"]),
            msgspec.json.encode(wanted, order="deterministic"),
        )
        try:
            there = msgspec.json.decode(await self._client.call("GET", place.path))
        except NotFound:
            there = None
        if there is not None and MANAGED not in (there["metadata"].get("labels") or {}):
            return False
        if there is not None and self._applied.get(place) == Applied(body, fingerprint(there)):
            return True
        wanted = _with_old_selector(wanted, there)
        if there is not None:  # what was looked at is what is changed
            wanted = {**wanted, "metadata": {**metadata, "resourceVersion": there["metadata"]["resourceVersion"]}}
        query = {"fieldManager": self._manager, "force": "true"}
        answer = await self._client.call("PATCH", place.path, query, msgspec.json.encode(wanted), APPLY_PATCH)
        self._applied[place] = Applied(body, fingerprint(msgspec.json.decode(answer)))
        return True

    async def delete(self, place: DeployedPlace) -> None:
        """Takes an object away."""
        self._applied.pop(place, None)
        try:
            await self._client.call("DELETE", place.path)
        except NotFound:
            return

    def _receiver(self, kind: str) -> Callable[[Sequence[ObjectChange]], Awaitable[None]]:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            for name, raw in changes:
                self._receive(DeployedPlace(kind, *name), name, raw)

        return receive

    def _receive(self, place: DeployedPlace, name: NamespacedName, raw: bytes | None) -> None:
        owner = self._there.pop(place, None)
        if raw is not None:
            found = msgspec.json.decode(raw)
            owner = ObjectKey(name.namespace, (found["metadata"].get("labels") or {}).get(NAME_LABEL, ""))
            self._there[place] = owner
            known = self._applied.get(place)
            if known is not None and known.found == fingerprint(found):
                return
        if owner is not None:
            self._changed(owner)


def fingerprint(found: Plain) -> bytes:
    """Returns the same for objects that differ in nothing that somebody wants: not in their status, nor in what the server counts."""
    metadata = {field: value for field, value in found["metadata"].items() if field not in _OF_SERVER}
    wanted = {
        field: value for field, value in found.items() if field not in ("status", "metadata", "kind", "apiVersion")
    }
    return hashlib.sha256(msgspec.json.encode([metadata, wanted], order="deterministic")).digest()


def _with_old_selector(wanted: Plain, there: Plain | None) -> Plain:
    """Returns a Deployment with the selector that it has had from an old control plane: a selector cannot be changed."""
    old = ((there or {}).get("spec") or {}).get("selector") or {}
    label = (old.get("matchLabels") or {}).get("istio.io/gateway-name") if wanted["kind"] == "Deployment" else None
    if label is None:
        return wanted
    template = wanted["spec"]["template"]
    metadata = template["metadata"]
    labelled = {**metadata, "labels": {**(metadata.get("labels") or {}), "istio.io/gateway-name": label}}
    return {**wanted, "spec": {**wanted["spec"], "selector": old, "template": {**template, "metadata": labelled}}}

"""Applies the objects that deploy a Gateway, and detects when other clients change them."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from pilot.config.object import ObjectKey
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange
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
WATCHED_KINDS = ("Deployment", "Service", "ServiceAccount", "HorizontalPodAutoscaler", "PodDisruptionBudget")
_SERVER_FIELDS = ("resourceVersion", "managedFields", "generation")


class DeployedKey(NamedTuple):
    """Kind, namespace and name of a deployed object."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        base, plural = PATHS[self.kind]
        return f"{base}/namespaces/{self.namespace}/{plural}/{self.name}"


class AppliedState(NamedTuple):
    """An applied object as JSON, and the fingerprint of the API server's result."""

    desired: bytes
    result: bytes


class DeployedObjects:
    """Applies objects as `field_manager`.

    When another client changes an object, `on_change` is called with the object's Gateway.
    """

    def __init__(
        self,
        client: ApiClient,
        field_manager: str,
        on_change: Callable[[ObjectKey], None],
        options: WatchOptions,
        rng: random.Random,
    ) -> None:
        self._client, self._field_manager, self._on_change = client, field_manager, on_change
        self._options, self._rng = options, rng
        self._applied: dict[DeployedKey, AppliedState] = {}
        self._owners: dict[DeployedKey, ObjectKey] = {}

    def informers(self) -> Iterator[Informer]:
        """Forget all objects, and yield new informers that watch them."""
        self._applied, self._owners = {}, {}
        for kind in WATCHED_KINDS:
            base, plural = PATHS[kind]
            yield Informer(
                self._client,
                WatchedCollection(f"{base}/{plural}", MANAGED),
                self._receiver(kind),
                self._options,
                self._rng,
            )

    def of_gateway(self, gateway: ObjectKey) -> list[DeployedKey]:
        """Return the existing objects of a Gateway."""
        return [key for key, owner in self._owners.items() if owner == gateway]

    async def apply(self, desired: Plain) -> bool:
        """Apply an object if it differs. Return False if an unmanaged object with the same name exists."""
        metadata = desired["metadata"]
        key = DeployedKey(desired["kind"], metadata["namespace"], metadata["name"])
        body = msgspec.json.encode(desired, order="deterministic")
        try:
            existing = msgspec.json.decode(await self._client.call("GET", key.path))
        except NotFound:
            existing = None
        if existing is not None and MANAGED not in (existing["metadata"].get("labels") or {}):
            return False
        if existing is not None and self._applied.get(key) == AppliedState(body, fingerprint(existing)):
            return True
        desired = _with_existing_selector(desired, existing)
        if existing is not None:  # change only the version that was checked above
            version = existing["metadata"]["resourceVersion"]
            desired = {**desired, "metadata": {**metadata, "resourceVersion": version}}
        query = {"fieldManager": self._field_manager, "force": "true"}
        answer = await self._client.call("PATCH", key.path, query, msgspec.json.encode(desired), APPLY_PATCH)
        self._applied[key] = AppliedState(body, fingerprint(msgspec.json.decode(answer)))
        return True

    async def delete(self, key: DeployedKey) -> None:
        """Delete an object."""
        self._applied.pop(key, None)
        try:
            await self._client.call("DELETE", key.path)
        except NotFound:
            return

    def _receiver(self, kind: str) -> Callable[[Sequence[ObjectChange]], Awaitable[None]]:
        async def receive(changes: Sequence[ObjectChange]) -> None:
            for name, raw in changes:
                self._receive(DeployedKey(kind, *name), name, raw)

        return receive

    def _receive(self, key: DeployedKey, name: NamespacedName, raw: bytes | None) -> None:
        owner = self._owners.pop(key, None)
        if raw is not None:
            plain = msgspec.json.decode(raw)
            owner = ObjectKey(name.namespace, (plain["metadata"].get("labels") or {}).get(NAME_LABEL, ""))
            self._owners[key] = owner
            applied = self._applied.get(key)
            if applied is not None and applied.result == fingerprint(plain):
                return
        if owner is not None:
            self._on_change(owner)


def fingerprint(plain: Plain) -> bytes:
    """Return a hash of an object, excluding its status and the metadata fields that the API server maintains."""
    metadata = {field: value for field, value in plain["metadata"].items() if field not in _SERVER_FIELDS}
    content = {
        field: value for field, value in plain.items() if field not in ("status", "metadata", "kind", "apiVersion")
    }
    return hashlib.sha256(msgspec.json.encode([metadata, content], order="deterministic")).digest()


def _with_existing_selector(desired: Plain, existing: Plain | None) -> Plain:
    """Return the desired object. If an older control plane set another selector in the Deployment, keep that selector.

    Selectors are immutable.
    """
    selector = ((existing or {}).get("spec") or {}).get("selector") or {}
    label = None
    if desired["kind"] == "Deployment":
        label = (selector.get("matchLabels") or {}).get("istio.io/gateway-name")
    if label is None:
        return desired
    template = desired["spec"]["template"]
    metadata = template["metadata"]
    metadata = {**metadata, "labels": {**(metadata.get("labels") or {}), "istio.io/gateway-name": label}}
    return {
        **desired,
        "spec": {**desired["spec"], "selector": selector, "template": {**template, "metadata": metadata}},
    }

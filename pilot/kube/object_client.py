"""Single objects of any kind at an API server: applied, read, listed and deleted, found by the apiVersion and the kind that they say."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.kube.client import JSON, ApiClient
from pilot.kube.errors import ApiError, KubeError, NotFound, Unreachable
from pilot.kube.wire import read_page
from pilot.lib.backoff import Backoff, RetryDelays

Plain = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
PAGE_SIZE = 500
_TRANSIENT_CODES = frozenset({429, 500, 502, 503, 504})
"""Answers after which the same request may succeed."""


class VersionedKind(NamedTuple):
    """A kind in one version, as objects say it."""

    api_version: str
    name: str


class ResourceKey(NamedTuple):
    """Which object: its kind, and its namespace, "" for those of the cluster, and name."""

    kind: VersionedKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.name} {self.name}"


class ServedKind(NamedTuple):
    """How a server serves a kind."""

    plural: str
    namespaced: bool


def resource_key(plain: Mapping[str, Any]) -> ResourceKey:
    """Returns which object it is."""
    metadata = plain["metadata"]
    return ResourceKey(
        VersionedKind(plain["apiVersion"], plain["kind"]), metadata.get("namespace") or "", metadata["name"]
    )


class UnknownKind(KubeError):
    """The server serves no such kind."""


class RetryPolicy(NamedTuple):
    """How often a request is made that fails in passing, and how long to wait in between."""

    attempts: int = 5
    backoff: Backoff = Backoff(0.2, 5.0)


class ObjectClient:
    """The objects of one API server, written in the name of `manager`. `dry_run`: the server says what it would do, and nothing changes."""

    def __init__(
        self,
        client: ApiClient,
        manager: str,
        choose: random.Random,
        dry_run: bool = False,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        self._client, self.manager, self._choose, self.dry_run, self._retry = client, manager, choose, dry_run, retry
        self._served: dict[str, dict[str, ServedKind]] = {}

    async def apply(self, plain: Plain) -> Plain:
        """Returns the object after it was applied, whoever else has set its fields. KubeError where the server refuses."""
        query = {"fieldManager": self.manager, "force": "true", **self._dry()}
        path = await self._path(resource_key(plain))
        found: Plain = msgspec.json.decode(await self._call("PATCH", path, query, msgspec.json.encode(plain), APPLY))
        return found

    async def get(self, key: ResourceKey) -> Plain | None:
        """Returns an object; None where there is none, or no such kind."""
        try:
            found: Plain = msgspec.json.decode(await self._call("GET", await self._path(key)))
        except (NotFound, UnknownKind):
            return None
        return found

    async def list(self, kind: VersionedKind, labels: str = "", namespace: str = "", fields: str = "") -> list[Plain]:
        """Returns the objects of a kind, each with its apiVersion and kind; none where there is no such kind."""
        try:
            path = await self._path(ResourceKey(kind, namespace, ""))
        except UnknownKind:
            return []
        query = {
            "limit": str(PAGE_SIZE),
            **({"labelSelector": labels} if labels else {}),
            **({"fieldSelector": fields} if fields else {}),
        }
        found: list[Plain] = []
        more = ""
        while True:
            page = read_page(await self._call("GET", path, {**query, **({"continue": more} if more else {})}))
            found += [
                {"apiVersion": kind.api_version, "kind": kind.name, **msgspec.json.decode(item)}
                for item in page.items or ()
            ]
            more = page.metadata.continue_
            if not more:
                return found

    async def delete(self, key: ResourceKey) -> bool:
        """Deletes an object, after what it owns; returns whether it was there."""
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"})
        try:
            await self._call("DELETE", await self._path(key), self._dry(), body)
        except (NotFound, UnknownKind):
            return False
        return True

    async def patch(self, key: ResourceKey, change: Mapping[str, Any], subresource: str = "") -> Plain:
        """Returns the object after a merge patch of it, or of a subresource. KubeError where the server refuses."""
        path = await self._path(key) + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": self.manager, **self._dry()}
        found: Plain = msgspec.json.decode(
            await self._call("PATCH", path, query, msgspec.json.encode(change), MERGE_PATCH)
        )
        return found

    async def collection(self, kind: VersionedKind, namespace: str = "") -> str:
        """Returns the path of all objects of a kind, or of those in a namespace. UnknownKind where there is none."""
        return await self._path(ResourceKey(kind, namespace, ""))

    async def version(self) -> str:
        """Returns what the server calls its version."""
        return str(msgspec.json.decode(await self._call("GET", "/version")).get("gitVersion", ""))

    def _dry(self) -> dict[str, str]:
        return {"dryRun": "All"} if self.dry_run else {}

    async def _path(self, key: ResourceKey) -> str:
        served = await self._find(key.kind)
        place = f"/namespaces/{key.namespace}" if served.namespaced and key.namespace else ""
        return f"{_base(key.kind.api_version)}{place}/{served.plural}" + (f"/{key.name}" if key.name else "")

    async def _find(self, kind: VersionedKind) -> ServedKind:
        """Returns how a kind is served; the server is asked again for one that it did not have."""
        found = self._served.get(kind.api_version, {}).get(kind.name)
        if found is None:
            found = (await self._discover(kind.api_version)).get(kind.name)
        if found is None:
            raise UnknownKind(f"the API server has no {kind.name} in {kind.api_version}")
        return found

    async def _discover(self, api_version: str) -> dict[str, ServedKind]:
        try:
            answer = msgspec.json.decode(await self._call("GET", _base(api_version)))
        except NotFound:
            return {}
        named = [r for r in answer.get("resources", ()) if "/" not in r["name"]]
        self._served[api_version] = {r["kind"]: ServedKind(r["name"], r["namespaced"]) for r in named}
        return self._served[api_version]

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        sent: str = JSON,
    ) -> bytes:
        """Returns the answer of a request, which is made again where it fails in passing: all of ours may be made twice."""
        attempts = RetryDelays(self._retry.backoff, self._choose)
        while True:
            try:
                return await self._client.call(method, path, query, body, sent)
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code not in _TRANSIENT_CODES:
                    raise
                wait = attempts.wait(error.retry_after if isinstance(error, ApiError) else 0.0)
                if attempts.failed >= self._retry.attempts:
                    raise
            await asyncio.sleep(wait)


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"

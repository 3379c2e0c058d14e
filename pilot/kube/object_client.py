"""Generic client for objects of any kind, identified by apiVersion and kind.

It applies, gets, lists, patches and deletes objects.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pilot.kube.api_client import JSON, LARGEST_RESPONSE, ApiClient
from pilot.kube.api_errors import ApiError, KubeError, NotFound, Unreachable
from pilot.kube.deep_json import decode_any_depth
from pilot.kube.pages import read_pages
from pilot.lib.backoff import Backoff, RetryDelays

Plain = dict[str, Any]
APPLY = "application/apply-patch+yaml"
MERGE_PATCH = "application/merge-patch+json"
_TRANSIENT_CODES = frozenset({429, 500, 502, 503, 504})
"""HTTP status codes after which the same request may succeed if it is repeated."""


class VersionedKind(NamedTuple):
    """The apiVersion and kind of an object."""

    api_version: str
    name: str


class ResourceKey(NamedTuple):
    """The kind, namespace and name of an object. The namespace of cluster-scoped objects is ""."""

    kind: VersionedKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.name} {self.namespace}/{self.name}" if self.namespace else f"{self.kind.name} {self.name}"


class ServedKind(NamedTuple):
    """The plural name of a kind in API paths, and whether the kind is namespaced."""

    plural: str
    namespaced: bool


def resource_key(plain: Mapping[str, Any]) -> ResourceKey:
    """Return the key of an object."""
    metadata = plain["metadata"]
    return ResourceKey(
        VersionedKind(plain["apiVersion"], plain["kind"]), metadata.get("namespace") or "", metadata["name"]
    )


class UnknownKind(KubeError):
    """The server does not serve this kind."""


class RetryPolicy(NamedTuple):
    """The number of attempts for requests that fail with a transient error, and the delays between attempts."""

    attempts: int = 5
    backoff: Backoff = Backoff(0.2, 5.0)


class ObjectClient:
    """Client for the objects of one API server.

    `field_manager` owns the fields that are applied. If `dry_run` is set, requests are validated but change nothing.
    """

    def __init__(
        self,
        client: ApiClient,
        field_manager: str,
        rng: random.Random,
        dry_run: bool = False,
        retry: RetryPolicy = RetryPolicy(),
    ) -> None:
        self._client, self.field_manager, self._rng, self._retry = client, field_manager, rng, retry
        self.dry_run = dry_run
        self._served: dict[str, dict[str, ServedKind]] = {}

    async def apply(self, plain: Plain) -> Plain:
        """Apply an object and return the result. Conflicting fields are taken over from other field managers.

        Raise KubeError if the server rejects the object.
        """
        query = {"fieldManager": self.field_manager, "force": "true", **self._dry_run_query()}
        path = await self._path(resource_key(plain))
        applied: Plain = msgspec.json.decode(await self._call("PATCH", path, query, msgspec.json.encode(plain), APPLY))
        return applied

    async def get(self, key: ResourceKey) -> Plain | None:
        """Return an object, or None if the object or its kind does not exist."""
        try:
            plain: Plain = msgspec.json.decode(await self._call("GET", await self._path(key)))
        except (NotFound, UnknownKind):
            return None
        return plain

    async def list(self, kind: VersionedKind, labels: str = "", namespace: str = "", fields: str = "") -> list[Plain]:
        """Return the objects of a kind. Return [] if the kind does not exist.

        apiVersion and kind, which the items of a list lack, are added to each object.
        """
        try:
            path = await self._path(ResourceKey(kind, namespace, ""))
        except UnknownKind:
            return []
        query = {
            **({"labelSelector": labels} if labels else {}),
            **({"fieldSelector": fields} if fields else {}),
        }

        async def fetch(page_query: dict[str, str], largest: int) -> bytes:
            return await self._call("GET", path, {**page_query, **query}, largest=largest)

        return [
            {"apiVersion": kind.api_version, "kind": kind.name, **await decode_any_depth(msgspec.json.decode, item)}
            async for page in read_pages(fetch)
            for item in page.items or ()
        ]

    async def delete(self, key: ResourceKey) -> bool:
        """Delete an object after its dependents have been deleted. Return whether the object existed."""
        body = msgspec.json.encode({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"})
        try:
            await self._call("DELETE", await self._path(key), self._dry_run_query(), body)
        except (NotFound, UnknownKind):
            return False
        return True

    async def post(self, key: ResourceKey, body: Mapping[str, Any], subresource: str = "") -> Plain:
        """Post to the collection of a kind, or to a subresource of an object, and return the answer.

        It is for requests that store nothing, such as reviews and tokens. Raise KubeError if the server rejects it.
        """
        path = await self._path(key) + (f"/{subresource}" if subresource else "")
        answer: Plain = msgspec.json.decode(await self._call("POST", path, body=msgspec.json.encode(body)))
        return answer

    async def patch(self, key: ResourceKey, change: Mapping[str, Any], subresource: str = "") -> Plain:
        """Apply a merge patch to an object or a subresource, and return the result.

        Raise KubeError if the server rejects the patch.
        """
        path = await self._path(key) + (f"/{subresource}" if subresource else "")
        query = {"fieldManager": self.field_manager, **self._dry_run_query()}
        patched: Plain = msgspec.json.decode(
            await self._call("PATCH", path, query, msgspec.json.encode(change), MERGE_PATCH)
        )
        return patched

    async def collection(self, kind: VersionedKind, namespace: str = "") -> str:
        """Return the path of a kind's objects in one namespace, or in all namespaces if `namespace` is "".

        Raise UnknownKind if the kind does not exist.
        """
        return await self._path(ResourceKey(kind, namespace, ""))

    async def logs(self, pod: ResourceKey, container: str, tail: int, largest: int) -> str:
        """Return the log of a container: its first `largest` bytes, or of its last `tail` lines if `tail` is not 0."""
        query = {"container": container, "limitBytes": str(largest), **({"tailLines": str(tail)} if tail else {})}
        return (await self._call("GET", f"{await self._path(pod)}/log", query)).decode("utf-8", "replace")

    async def version(self) -> str:
        """Return the server's version."""
        return await self._check_server()

    async def _check_server(self) -> str:
        """Return the server's version. Raise KubeError if it is not an API server."""
        try:
            plain = msgspec.json.decode(await self._call("GET", "/version"), type=dict[str, Any])
            return str(plain["gitVersion"])
        except (NotFound, msgspec.MsgspecError, KeyError) as error:
            text = "/version: the response is not from a Kubernetes API server; check the server in the kubeconfig"
            raise KubeError(text) from error

    def _dry_run_query(self) -> dict[str, str]:
        return {"dryRun": "All"} if self.dry_run else {}

    async def _path(self, key: ResourceKey) -> str:
        served = await self._served_kind(key.kind)
        scope = f"/namespaces/{key.namespace}" if served.namespaced and key.namespace else ""
        return f"{_base(key.kind.api_version)}{scope}/{served.plural}" + (f"/{key.name}" if key.name else "")

    async def _served_kind(self, kind: VersionedKind) -> ServedKind:
        """Return how a kind is served. If the kind is not known, discover the kinds of its apiVersion again."""
        served = self._served.get(kind.api_version, {}).get(kind.name)
        if served is None:
            served = (await self._discover(kind.api_version)).get(kind.name)
        if served is None:
            raise UnknownKind(f"the API server does not serve {kind.name} in {kind.api_version}")
        return served

    async def _discover(self, api_version: str) -> dict[str, ServedKind]:
        path = _base(api_version)
        try:
            listing = msgspec.json.decode(await self._call("GET", path), type=dict[str, Any])
        except NotFound as error:
            if not error.reason:  # API servers also answer requests for unknown groups with a plain text
                await self._check_server()
            return {}
        except msgspec.MsgspecError:
            listing = {}
        if "resources" not in listing:
            raise KubeError(f"{path}: the response is no list of kinds, so it is not from a Kubernetes API server")
        resources = [r for r in listing.get("resources", ()) if "/" not in r["name"]]  # without subresources
        self._served[api_version] = {r["kind"]: ServedKind(r["name"], r["namespaced"]) for r in resources}
        return self._served[api_version]

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = JSON,
        largest: int = LARGEST_RESPONSE,
    ) -> bytes:
        """Return the body of the response. Transient failures are retried, because all requests of this class can be
        repeated safely."""
        attempts = RetryDelays(self._retry.backoff, self._rng)
        while True:
            try:
                return await self._client.call(method, path, query, body, content_type, largest=largest)
            except (ApiError, Unreachable) as error:
                if isinstance(error, ApiError) and error.code not in _TRANSIENT_CODES:
                    raise
                delay = attempts.next_delay(error.retry_after if isinstance(error, ApiError) else 0.0)
                if attempts.failures >= self._retry.attempts:
                    raise
            await asyncio.sleep(delay)


def _base(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"

"""The objects of a mesh on a real API server, without the controllers that would complete them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Iterable
from typing import Any

import msgspec

from pilot.kube.api_access import KubeconfigFile
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, KubeError, NotFound
from pilot.kube.object_client import ObjectClient, ResourceKey, VersionedKind, resource_key

Plain = dict[str, Any]
_FIRST = ("CustomResourceDefinition", "Namespace", "Node", "ServiceAccount", "GatewayClass")
_PERMANENT = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})


class RealMesh:
    """Writes objects as they are, including their status, and deletes them again."""

    def __init__(self, kubeconfig: str) -> None:
        self._client = ApiClient(KubeconfigFile(kubeconfig, ""))
        self.objects = ObjectClient(self._client, "bench", random.Random(1))
        self._written: dict[ResourceKey, Plain] = {}

    async def close(self) -> None:
        await self._client.close()

    async def write(self, plains: Iterable[Plain]) -> None:
        """Create or replace objects with their status. The kinds that others depend on are written first."""
        plains = list(plains)
        for kind in _FIRST:
            await self._write_all([plain for plain in plains if plain["kind"] == kind])
        await self._write_all([plain for plain in plains if plain["kind"] not in _FIRST])

    async def replace(self, plains: Iterable[Plain]) -> list[str]:
        """Make these the only objects that this method has written, and return the messages about rejected objects.

        Namespaces stay.
        """
        target = {resource_key(plain): plain for plain in plains if not _is_builtin(plain)}
        same = {key for key, plain in self._written.items() if target.get(key) == plain}
        stale = [o for key, o in self._written.items() if key not in same and o["kind"] != "Namespace"]
        await self.delete(stale)
        self._written = {key: plain for key, plain in target.items() if key in same}
        messages: list[str] = []

        async def write(key: ResourceKey, plain: Plain) -> None:
            try:
                await self._write(plain)
                self._written[key] = plain
            except KubeError as error:
                messages.append(f"{plain['kind']} {key.namespace}/{key.name}: {error}")

        fresh = [(key, plain) for key, plain in target.items() if key not in same]
        for is_first in (True, False):
            part = [(key, plain) for key, plain in fresh if (plain["kind"] in _FIRST) is is_first]
            gate = asyncio.Semaphore(32)
            await asyncio.gather(*(_within(gate, write(key, plain)) for key, plain in part))
        return messages

    async def delete(self, plains: Iterable[Plain]) -> None:
        """Delete objects without waiting for dependents."""
        gate = asyncio.Semaphore(32)

        async def delete(plain: Plain) -> None:
            async with gate:
                await self._delete(plain)

        await asyncio.gather(*map(delete, plains))

    async def wait_for_kinds(self, definitions: Iterable[Plain]) -> None:
        """Wait until the kinds of definitions are served."""
        for definition in definitions:
            spec = definition["spec"]
            version = next(v["name"] for v in spec["versions"] if v["served"])
            kind = VersionedKind(f"{spec['group']}/{version}", spec["names"]["kind"])
            async with asyncio.timeout(60):
                while not await self._is_served(kind):
                    await asyncio.sleep(0.2)

    async def _is_served(self, kind: VersionedKind) -> bool:
        with contextlib.suppress(Exception):
            await self.objects.collection(kind)
            await self.objects.list(kind)
            return True
        return False

    async def _write_all(self, plains: list[Plain]) -> None:
        gate = asyncio.Semaphore(32)

        async def write(plain: Plain) -> None:
            async with gate:
                await self._write(plain)

        await asyncio.gather(*map(write, plains))

    async def _write(self, plain: Plain) -> None:
        key, body = resource_key(plain), {name: value for name, value in plain.items() if name != "status"}
        collection = await self.objects.collection(key.kind, key.namespace)
        try:
            await self._client.call("POST", collection, body=msgspec.json.encode(body))
        except ApiError as error:
            if error.code not in (409, 422):
                raise
            path = f"{collection}/{key.name}"
            current = msgspec.json.decode(await self._client.call("GET", path))
            metadata = {**body["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
            fixed = {"spec": current["spec"]} if plain["kind"] in ("Pod", "Namespace") else {}
            await self._client.call("PUT", path, body=msgspec.json.encode({**body, "metadata": metadata, **fixed}))
        if plain.get("status"):
            await self.objects.patch(key, {"status": plain["status"]}, "status")

    async def _delete(self, plain: Plain) -> None:
        key = resource_key(plain)
        if plain["kind"] == "Namespace" and key.name in _PERMANENT:
            return
        path = f"{await self.objects.collection(key.kind, key.namespace)}/{key.name}"
        with contextlib.suppress(NotFound):
            await self._client.call("DELETE", path, body=b'{"gracePeriodSeconds": 0}')
        if plain["kind"] == "Namespace":
            await self._finalize(path)

    async def _finalize(self, path: str) -> None:
        """Complete the deletion of a namespace, which a controller would do."""
        with contextlib.suppress(NotFound):
            current = msgspec.json.decode(await self._client.call("GET", path))
            current["spec"]["finalizers"] = []
            await self._client.call("PUT", f"{path}/finalize", body=msgspec.json.encode(current))


def _is_builtin(plain: Plain) -> bool:
    """Return whether the API server itself writes the object."""
    return bool(plain["kind"] == "Service" and plain["metadata"]["name"] == "kubernetes")


async def _within(gate: asyncio.Semaphore, work: Awaitable[None]) -> None:
    async with gate:
        await work

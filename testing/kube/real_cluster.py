"""The objects of a mesh at a real API server."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable
from typing import Any

import aiohttp

from testing.kube.real_server import ADMIN

Plain = dict[str, Any]
Identity = tuple[str, str, str, str]
"""Group, kind, namespace and name of an object."""
WRITES = 12
"""Objects that are written at the same time."""


def identity(o: Plain) -> Identity:
    """Return the group, kind, namespace and name of an object."""
    group = o["apiVersion"].rpartition("/")[0]
    return group, o["kind"], o["metadata"].get("namespace", ""), o["metadata"]["name"]


class RealCluster:
    """The objects of the mesh at the API server."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session, self._url = session, url
        self._paths: dict[tuple[str, str], tuple[str, bool, bool]] = {}
        self._versions: dict[tuple[str, str], str] = {}
        self._live: dict[Identity, str] = {}
        self._gate = asyncio.Semaphore(WRITES)

    async def replace(self, objects: Iterable[Plain]) -> list[str]:
        """Make these the only objects, and return the messages about those that the server rejected."""
        target = {identity(o): o for o in objects if not _is_builtin(o)}
        digests = {key: _digest(o) for key, o in target.items()}
        stale = [key for key, digest in self._live.items() if digests.get(key) != digest and key[1] != "Namespace"]
        await asyncio.gather(*(self._delete(key) for key in stale))
        fresh = [o for key, o in target.items() if self._live.get(key) != digests[key]]
        messages: list[str] = []
        for namespaces in (True, False):
            part = [o for o in fresh if (o["kind"] == "Namespace") is namespaces]
            messages += [m for m in await asyncio.gather(*(self._create(o, digests[identity(o)]) for o in part)) if m]
        return messages

    async def _delete(self, key: Identity) -> None:
        group, kind, namespace, name = key
        path, _ = await self._path(self._versions[group, kind], kind, namespace)
        await self._call("DELETE", f"{path}/{name}", {"gracePeriodSeconds": 0})
        self._live.pop(key, None)

    async def _create(self, plain: Plain, digest: str) -> str:
        key = identity(plain)
        self._versions[key[:2]] = plain["apiVersion"]
        path, has_status = await self._path(plain["apiVersion"], plain["kind"], key[2])
        metadata = {k: v for k, v in plain["metadata"].items() if k in ("name", "namespace", "labels", "annotations")}
        body = json.loads(json.dumps({**plain, "metadata": metadata}, default=str))
        code, reply = await self._call("POST", path, body)
        if code == 409 and "AlreadyExists" in str(reply.get("reason")):
            code, reply = await self._call("PUT", f"{path}/{key[3]}", body)
        if code >= 300:
            return f"{plain['kind']} {key[2]}/{key[3]}: {reply.get('message', '')[:200]}"
        self._live[key] = digest
        if body.get("status") and has_status:
            metadata = {**metadata, "resourceVersion": reply["metadata"]["resourceVersion"]}
            await self._call("PUT", f"{path}/{key[3]}/status", {**reply, "status": body["status"]})
        return ""

    async def _path(self, version: str, kind: str, namespace: str) -> tuple[str, bool]:
        if (version, kind) not in self._paths:
            base = f"/apis/{version}" if "/" in version else f"/api/{version}"
            _, listed = await self._call("GET", base)
            resources = listed.get("resources", [])
            statuses = {r["name"].partition("/")[0] for r in resources if r["name"].endswith("/status")}
            for r in resources:
                if "/" not in r["name"]:
                    self._paths[version, r["kind"]] = (f"{base}|{r['name']}", r["namespaced"], r["name"] in statuses)
        if (version, kind) not in self._paths:
            return f"/apis/{version}/unknown", False
        path, namespaced, has_status = self._paths[version, kind]
        base, _, plural = path.partition("|")
        return (
            f"{base}/namespaces/{namespace or 'default'}/{plural}" if namespaced else f"{base}/{plural}"
        ), has_status

    async def _call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {ADMIN}"}
        async with (
            self._gate,
            self._session.request(method, self._url + path, json=body, headers=headers, ssl=False) as response,
        ):
            reply = await response.json(content_type=None)
            return response.status, reply if isinstance(reply, dict) else {}


def _is_builtin(plain: Plain) -> bool:
    return plain["kind"] == "Service" and plain["metadata"]["name"] == "kubernetes"


def _digest(plain: Plain) -> str:
    return hashlib.sha256(json.dumps(plain, sort_keys=True, default=str).encode()).hexdigest()

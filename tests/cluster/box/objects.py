"""Watched collections of the API server, and requests of the box's own components."""

from __future__ import annotations

import asyncio
import json
import pathlib
import random
from collections.abc import Callable, Sequence
from typing import Any

from pilot.kube.api_access import KubeconfigFile
from pilot.kube.api_client import ApiClient
from pilot.kube.api_errors import ApiError, KubeError, NotFound
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import NamespacedName, ObjectChange

Plain = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"


class Collection(dict[NamespacedName, Plain]):
    """The objects of one kind as of now. `on_change` is called after each change."""

    def __init__(self, on_change: Callable[[NamespacedName, Plain | None], None]) -> None:
        super().__init__()
        self._on_change = on_change

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        for change in changes:
            plain = None if change.raw is None else json.loads(change.raw)
            if plain is None:
                self.pop(change.name, None)
            else:
                self[change.name] = plain
            self._on_change(change.name, plain)


class Api:
    """The API server as an administrator uses it."""

    def __init__(self, kubeconfig: pathlib.Path) -> None:
        self._client = ApiClient(KubeconfigFile(str(kubeconfig)))
        self._tasks: list[asyncio.Task[None]] = []

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Plain:
        """Return the response's object. Raise KubeError if the server rejects the request."""
        payload = None if body is None else json.dumps(body).encode()
        answer: Plain = json.loads(await self._client.call(method, path, None, payload, content_type) or b"{}")
        return answer

    async def get(self, path: str) -> Plain | None:
        try:
            return await self.request("GET", path)
        except NotFound:
            return None

    async def set_pod_status(self, pod: Plain, status: Plain) -> None:
        """Merge a status into a pod. Do nothing if the pod is gone or replaced."""
        change = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        try:
            await self.request("PATCH", pod_path(pod) + "/status", change, STRATEGIC)
        except NotFound:
            pass
        except ApiError as error:
            if error.code != 409:
                raise

    async def remove_pod(self, pod: Plain) -> None:
        """Delete a pod whose containers have ended."""
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        try:
            await self.request("DELETE", pod_path(pod), options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise

    async def watch(
        self, path: str, on_change: Callable[[NamespacedName, Plain | None], None], fields: str = ""
    ) -> Collection:
        """Return a collection that is kept up to date, after its first list."""
        objects = Collection(on_change)
        collection = WatchedCollection(path, fields=fields)
        informer = Informer(self._client, collection, objects.receive, WatchOptions(), random.Random())
        self._tasks.append(asyncio.create_task(informer.run()))
        await informer.synced.wait()
        return objects

    async def is_ready(self) -> bool:
        try:
            await self._client.call("GET", "/readyz")
        except KubeError:
            return False
        return True

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()


def pod_path(pod: Plain) -> str:
    """Return the path of a pod."""
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"

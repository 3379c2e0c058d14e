"""Kubernetes as a source of configuration: documents are objects of an API server.

The API server is the one in `testing.apiserver` or a real one, which KUBECONFIG names. On a real one,
CustomResourceDefinitions are replaced, and objects are created and deleted in the namespaces `default` and `shop`, so
use a disposable cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
from collections.abc import Coroutine, Mapping
from typing import Any

import yaml

from pilot.config.group_kind import GroupKind
from pilot.config.kind import AnyKind
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.watched_kinds import collection_of
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube.api_access import KubeconfigFile
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.api_errors import Conflict, NotFound
from pilot.kube.list_watch import NamespacedName
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until, watch_options
from testing.mesh.clock import VirtualClock

Row = tuple[GroupKind, NamespacedName]
Plain = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = GroupKind("", "Namespace")


class KubeConfigSource:
    """An API server and a source that watches it, in a separate event loop. A name stands for a set of objects."""

    def __init__(self, streams: bool = False) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self._named: dict[str, dict[Row, Plain]] = {}
        self._runner = asyncio.Runner()
        self._run(self._start(streams, os.environ.get("KUBECONFIG", "")))
        self.clock.advance(1)
        self.commits.clear()

    async def _start(self, streams: bool, kubeconfig: str) -> None:
        self._server = None if kubeconfig else ApiServer()
        if self._server is not None:
            await self._server.start()
            self.client = client_of(self._server, RequestTimeouts())
        else:
            self.client = ApiClient(KubeconfigFile(kubeconfig))
            await self._populate()
        await self._define()
        source = KubeSource(
            self.client,
            self.batch,
            Ledger(self.problems),
            0,
            DocumentOrigin(),
            self.mesh.catalogue,
            watch_options(streams),
            random.Random(1),
        )
        self.source = source
        await source.start()
        await source.synced()

    async def _define(self) -> None:
        """Create the CustomResourceDefinitions of all kinds, and wait until they are served."""
        for plain in definitions():
            path = f"{DEFINITIONS}/{plain['metadata']['name']}"
            try:
                current = json.loads(await self.client.call("GET", path))
            except NotFound:
                await self.client.call("POST", DEFINITIONS, body=json.dumps(plain).encode())
            else:
                if _is_contained(plain["spec"], current["spec"]):
                    continue
                metadata = {**plain["metadata"], "resourceVersion": current["metadata"]["resourceVersion"]}
                await self.client.call("PUT", path, body=json.dumps({**plain, "metadata": metadata}).encode())
        for kind in self.mesh.catalogue:
            for version in kind.versions:
                await self._wait_for(collection_of(kind, version).path)

    async def _populate(self) -> None:
        """Create the objects that controllers would create in a real cluster."""
        await self._create("/api/v1/namespaces", "Namespace", "shop")
        for namespace in ("default", "shop"):
            await self._create(f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount", "default")

    async def _create(self, collection: str, kind: str, name: str) -> None:
        with contextlib.suppress(Conflict):
            await self.client.call("POST", collection, body=_body({"apiVersion": "v1", "kind": kind}, {"name": name}))

    async def _wait_for(self, path: str) -> None:
        async with asyncio.timeout(30):
            while True:
                try:
                    await self.client.call("GET", path, {"limit": "1"})
                    return
                except NotFound:
                    await asyncio.sleep(0.1)

    def set(self, name: str, text: str) -> None:
        objects = {self._row(plain): plain for plain in yaml.safe_load_all(text) if plain}
        previous = self._named.get(name, {})
        self._named[name] = objects
        self._run(self._write(objects, [(row, plain) for row, plain in previous.items() if row not in objects]))
        self.clock.advance(1)

    def remove(self, name: str) -> None:
        self._run(self._write({}, list(self._named.pop(name).items())))
        self.clock.advance(1)

    def close(self) -> None:
        for name in list(self._named):
            self.remove(name)
        self._run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self.source.stop()
        await self.client.close()
        if self._server is not None:
            await self._server.stop()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def _kind(self, plain: Plain) -> AnyKind:
        group = plain["apiVersion"].rpartition("/")[0] if "/" in plain["apiVersion"] else ""
        kind = self.mesh.catalogue.find(GroupKind(group, plain["kind"]))
        assert kind is not None
        return kind

    def _row(self, plain: Plain) -> Row:
        kind = self._kind(plain)
        return kind.id, NamespacedName(
            plain["metadata"].get("namespace", "default") if kind.namespaced else "", plain["metadata"]["name"]
        )

    async def _write(self, objects: dict[Row, Plain], deleted: list[tuple[Row, Plain]]) -> None:
        """Write and delete objects as any client does, and wait until the source has received the changes."""
        expected_versions: dict[Row, str] = {}
        for row, plain in objects.items():
            expected_versions[row] = await self._put(row, plain)
        for row, plain in deleted:
            await self._delete(row, plain)
            expected_versions[row] = ""
        await until(lambda: all(self._received(row, version) for row, version in expected_versions.items()))

    async def _put(self, row: Row, plain: Plain) -> str:
        """Create or replace an object with its status, and return its resource version."""
        collection = self._path(row, plain)
        path = f"{collection}/{row[1].name}"
        metadata = {k: v for k, v in plain["metadata"].items() if k not in ("resourceVersion", "uid", "managedFields")}
        try:
            response = await self.client.call("POST", collection, body=_body(plain, metadata))
        except Conflict:
            response = await self.client.call(
                "PUT", path, body=_body(plain, metadata | _version(await self.client.call("GET", path)))
            )
        if "status" in plain:
            response = await self.client.call("PUT", f"{path}/status", body=_body(plain, metadata | _version(response)))
        return _version(response)["resourceVersion"]

    async def _delete(self, row: Row, plain: Plain) -> None:
        path = f"{self._path(row, plain)}/{row[1].name}"
        await self.client.call("DELETE", path)
        if row[0] == NAMESPACE and self._server is None:  # without a namespace controller, nothing else finalizes it
            body = {**json.loads(await self.client.call("GET", path)), "spec": {"finalizers": []}}
            await self.client.call("PUT", f"{path}/finalize", body=json.dumps(body).encode())

    def _path(self, row: Row, plain: Plain) -> str:
        base, _, plural = collection_of(self._kind(plain), plain["apiVersion"].rpartition("/")[2]).path.rpartition("/")
        return f"{base}/namespaces/{row[1].namespace}/{plural}" if row[1].namespace else f"{base}/{plural}"

    def _received(self, row: Row, version: str) -> bool:
        """Return whether the source has received this version of an object. "" means that it is deleted."""
        informer = self.source.watches[row[0]].informer
        return informer.versions.get(row[1], "") == version and not informer.receiving


def _body(plain: Plain, metadata: Mapping[str, Any]) -> bytes:
    return json.dumps({**plain, "metadata": metadata}, default=str).encode()


def _version(response: bytes) -> dict[str, str]:
    return {"resourceVersion": json.loads(response)["metadata"]["resourceVersion"]}


def _is_contained(expected: Any, actual: Any) -> bool:
    """Return whether a value is contained in the actual one, ignoring fields that the server added."""
    if isinstance(expected, dict):
        return isinstance(actual, dict) and all(
            key in actual and _is_contained(value, actual[key]) for key, value in expected.items()
        )
    if isinstance(expected, list):
        return isinstance(actual, list) and len(expected) == len(actual) and all(map(_is_contained, expected, actual))
    return bool(expected == actual)

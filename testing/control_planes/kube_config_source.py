"""Kubernetes as a source of configuration that the suite over all sources sees: documents are objects of an API server.

It is the one of the tests, or a real one, which KUBECONFIG names. There the definitions of all kinds are put in place of those that it has, and
objects are made and taken away in the namespaces `default` and `shop`: it should be a server that nobody needs.
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
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.ingest.watched_kinds import collection_of
from pilot.kube.api_access import KubeconfigFile
from pilot.kube.api_client import ApiClient, RequestTimeouts
from pilot.kube.api_errors import Conflict, NotFound
from pilot.kube.list_watch import NamespacedName
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, pace, until
from testing.mesh.clock import VirtualClock

Row = tuple[GroupKind, NamespacedName]
Plain = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAMESPACE = GroupKind("", "Namespace")


class KubeConfig:
    """An API server, and a source that follows it, in an event loop of their own. A name stands for some objects."""

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
            pace(streams),
            random.Random(1),
        )
        self.source = source
        await source.start()
        await source.synced()

    async def _define(self) -> None:
        """Has all kinds defined, and waits until they are served."""
        for plain in definitions():
            path = f"{DEFINITIONS}/{plain['metadata']['name']}"
            try:
                there = json.loads(await self.client.call("GET", path))
            except NotFound:
                await self.client.call("POST", DEFINITIONS, body=json.dumps(plain).encode())
            else:
                if _says_less(plain["spec"], there["spec"]):
                    continue
                metadata = {**plain["metadata"], "resourceVersion": there["metadata"]["resourceVersion"]}
                await self.client.call("PUT", path, body=json.dumps({**plain, "metadata": metadata}).encode())
        for kind in self.mesh.catalogue:
            for version in kind.versions:
                await self._wait_for(collection_of(kind, version).path)

    async def _populate(self) -> None:
        """Makes what objects need that controllers would make, where they do not run."""
        await self._make("/api/v1/namespaces", "Namespace", "shop")
        for namespace in ("default", "shop"):
            await self._make(f"/api/v1/namespaces/{namespace}/serviceaccounts", "ServiceAccount", "default")

    async def _make(self, collection: str, kind: str, name: str) -> None:
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
        found = {self._row(plain): plain for plain in yaml.safe_load_all(text) if plain}
        old = self._named.get(name, {})
        self._named[name] = found
        self._run(self._write(found, [(row, plain) for row, plain in old.items() if row not in found]))
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
        read = self.mesh.catalogue.find(GroupKind(group, plain["kind"]))
        assert read is not None
        return read

    def _row(self, plain: Plain) -> Row:
        kind = self._kind(plain)
        return kind.id, NamespacedName(
            plain["metadata"].get("namespace", "default") if kind.namespaced else "", plain["metadata"]["name"]
        )

    async def _write(self, there: dict[Row, Plain], gone: list[tuple[Row, Plain]]) -> None:
        """Writes objects as any client does, and waits until the source has received them."""
        wanted: dict[Row, str] = {}
        for row, plain in there.items():
            wanted[row] = await self._put(row, plain)
        for row, plain in gone:
            await self._delete(row, plain)
            wanted[row] = ""
        await until(lambda: all(self._received(row, version) for row, version in wanted.items()))

    async def _put(self, row: Row, plain: Plain) -> str:
        """Creates or replaces an object, with its status; returns its resource version."""
        collection = self._path(row, plain)
        path = f"{collection}/{row[1].name}"
        metadata = {k: v for k, v in plain["metadata"].items() if k not in ("resourceVersion", "uid", "managedFields")}
        try:
            answer = await self.client.call("POST", collection, body=_body(plain, metadata))
        except Conflict:
            answer = await self.client.call(
                "PUT", path, body=_body(plain, metadata | _version(await self.client.call("GET", path)))
            )
        if "status" in plain:
            answer = await self.client.call("PUT", f"{path}/status", body=_body(plain, metadata | _version(answer)))
        return _version(answer)["resourceVersion"]

    async def _delete(self, row: Row, plain: Plain) -> None:
        path = f"{self._path(row, plain)}/{row[1].name}"
        await self.client.call("DELETE", path)
        if (
            row[0] == NAMESPACE and self._server is None
        ):  # somebody has to say that nothing is in it, where no controller does
            body = {**json.loads(await self.client.call("GET", path)), "spec": {"finalizers": []}}
            await self.client.call("PUT", f"{path}/finalize", body=json.dumps(body).encode())

    def _path(self, row: Row, plain: Plain) -> str:
        base, _, plural = collection_of(self._kind(plain), plain["apiVersion"].rpartition("/")[2]).path.rpartition("/")
        return f"{base}/namespaces/{row[1].namespace}/{plural}" if row[1].namespace else f"{base}/{plural}"

    def _received(self, row: Row, version: str) -> bool:
        """Returns whether an object has been received in a version; "" stands for none."""
        informer = self.source.watches[row[0]].informer
        return informer.versions.get(row[1], "") == version and not informer.receiving


def _body(plain: Plain, metadata: Mapping[str, Any]) -> bytes:
    return json.dumps({**plain, "metadata": metadata}, default=str).encode()


def _version(answer: bytes) -> dict[str, str]:
    return {"resourceVersion": json.loads(answer)["metadata"]["resourceVersion"]}


def _says_less(wanted: Any, there: Any) -> bool:
    """Returns whether all that is wanted is there, beside what the server has added."""
    if isinstance(wanted, dict):
        return isinstance(there, dict) and all(
            key in there and _says_less(value, there[key]) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(there, list) and len(wanted) == len(there) and all(map(_says_less, wanted, there))
    return bool(wanted == there)

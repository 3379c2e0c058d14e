"""Kubernetes as a source of configuration that the suite over all sources sees: documents are objects of an API server."""
from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Coroutine
from typing import Any

import yaml

from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import Origin
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.kube.errors import Conflict
from pilot.kube.wire import Name
from pilot.lib.duration import parse_duration
from pilot.model.inputs import Mesh
from pilot.model.kind import GroupKind
from tests.support.apiserver.definitions import definitions
from tests.support.apiserver.server import ApiServer
from tests.support.clock import VirtualClock
from tests.support.kube import client_of, pace, until

Row = tuple[GroupKind, Name]


class KubeConfig:
    """An API server, and a source that follows it, in an event loop of their own. A name stands for some objects."""

    def __init__(self, streams: bool = False) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self.server = ApiServer()
        for plain in definitions():
            self.server.put(plain)
        self._named: dict[str, dict[Row, dict[str, Any]]] = {}
        self._runner = asyncio.Runner()
        self._run(self._start(streams))

    async def _start(self, streams: bool) -> None:
        await self.server.start()
        self.client = client_of(self.server)
        ledger = Ledger(self.problems)
        self.source = KubeSource(self.client, self.batch, ledger, 0, Origin(), self.mesh.catalogue, pace(streams), random.Random(1))
        await self.source.start()
        await self.source.synced()

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
        self._run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self.source.stop()
        await self.client.close()
        await self.server.stop()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def _row(self, plain: dict[str, Any]) -> Row:
        kind = GroupKind(plain["apiVersion"].rpartition("/")[0] if "/" in plain["apiVersion"] else "", plain["kind"])
        read = self.mesh.catalogue.find(kind)
        assert read is not None
        return kind, Name(plain["metadata"].get("namespace", "default") if read.namespaced else "", plain["metadata"]["name"])

    async def _write(self, there: dict[Row, dict[str, Any]], gone: list[tuple[Row, dict[str, Any]]]) -> None:
        """Writes objects as any client does, and waits until the source has received them."""
        wanted: dict[Row, str] = {}
        for row, plain in there.items():
            wanted[row] = await self._put(row, plain)
        for row, plain in gone:
            await self.client.call("DELETE", f"{self._path(row, plain)}/{row[1].name}")
            wanted[row] = ""
        await until(lambda: all(self._received(row, version) for row, version in wanted.items()))

    async def _put(self, row: Row, plain: dict[str, Any]) -> str:
        """Creates or replaces an object, with its status; returns its resource version."""
        path = self._path(row, plain)
        metadata = {k: v for k, v in plain["metadata"].items() if k not in ("resourceVersion", "uid", "managedFields")}
        body = json.dumps({**plain, "metadata": metadata}, default=str).encode()
        try:
            answer = await self.client.call("POST", path, body=body)
        except Conflict:
            answer = await self.client.call("PUT", f"{path}/{row[1].name}", body=body)
        if "status" in plain:
            answer = await self.client.call("PUT", f"{path}/{row[1].name}/status", body=body)
        version: str = json.loads(answer)["metadata"]["resourceVersion"]
        return version

    def _path(self, row: Row, plain: dict[str, Any]) -> str:
        resource = self.server.resources.of_object(plain)
        return resource.path(row[1].namespace, plain["apiVersion"].rpartition("/")[2])

    def _received(self, row: Row, version: str) -> bool:
        follower = self.source.followed[row[0]].follower
        return follower.versions.get(row[1], "") == version and not follower.receiving


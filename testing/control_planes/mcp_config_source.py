"""An MCP server as a source of configuration."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import yaml

from pilot.config.group_kind import GroupKind
from pilot.ingest.batch import Batch, Commit
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.mcp_source import McpSource
from pilot.ingest.problems import ProblemStore
from pilot.lib.backoff import Backoff
from pilot.lib.duration import parse_duration
from pilot.mcp.stream import McpClient, McpEndpoint, McpStream
from pilot.mesh.tables.database import Mesh
from testing.kube.kube_access import until
from testing.mesh.clock import VirtualClock
from testing.servers.mcp_server import McpServer, name_of, type_of

ObjectsByName = dict[tuple[str, str], dict[str, Any]]


class McpConfigSource:
    """A server and a source connected to it, in a separate event loop. A name stands for a set of objects."""

    def __init__(self) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self.server = McpServer()
        self._named: dict[str, ObjectsByName] = {}
        self._runner = asyncio.Runner()
        self.run(self._start())

    async def _start(self) -> None:
        await self.server.start()
        address = f"127.0.0.1:{self.server.port}"
        self.source = McpSource(
            f"xds://{address}",
            self.mesh.catalogue,
            self.batch,
            Ledger(self.problems),
            0,
            DocumentOrigin(),
            self.problems,
        )
        client = McpClient("sidecar~127.0.0.1~istiod.istio-system~istio-system.svc.cluster.local", "istio-system")
        receive = self.source.receive
        self.stream = McpStream(
            McpEndpoint(address, self._no_credentials),
            client,
            self.source.types,
            receive,
            self.source.told,
            Backoff(0.001, 0.02),
            random.Random(1),
        )
        await self.stream.start()
        await self.source.synced.wait()
        await until(lambda: self.server.is_acknowledged(*self.source.types))

    async def _no_credentials(self) -> None:
        return None

    def set(self, name: str, text: str) -> None:
        objects = {
            (str(type_of(plain)), name_of(plain)): plain
            for plain in map(self._preferred, yaml.safe_load_all(text))
            if plain
        }
        previous = self._named.get(name, {})
        self._named[name] = objects
        self._send(objects, {key: plain for key, plain in previous.items() if key not in objects})

    def remove(self, name: str) -> None:
        self._send({}, self._named.pop(name))

    def _preferred(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the object in the version that the source requests."""
        type_ = type_of(plain)
        kind = self.mesh.catalogue.find(GroupKind(type_.group, type_.kind))
        assert kind is not None
        return {**plain, "apiVersion": type_._replace(version=kind.versions[0]).api_version}

    def _send(self, objects: ObjectsByName, deleted: ObjectsByName) -> None:
        types = {self.server.put(plain) for plain in objects.values()} | {
            self.server.delete(plain) for plain in deleted.values()
        }
        self.push(*types)

    def push(self, *types: str) -> None:
        """Have the server push its objects of some types, and wait until they are received."""
        previous = {type_: self.server.sent[type_] for type_ in types}
        self.server.push(*types)
        self.run(
            until(
                lambda: (
                    self.server.is_acknowledged(*types)
                    and all(self.server.sent[type_] != previous[type_] for type_ in types)
                )
            )
        )
        self.clock.advance(1)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def close(self) -> None:
        self.run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self.stream.stop()
        await self.server.stop()

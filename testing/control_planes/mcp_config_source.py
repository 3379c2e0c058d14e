"""A server of objects over xDS as a source of configuration that the suite over all sources sees."""

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

Named = dict[tuple[str, str], dict[str, Any]]


class McpConfig:
    """A server, and a source that follows it, in an event loop of their own. A name stands for some objects."""

    def __init__(self) -> None:
        self.mesh, self.problems, self.clock = Mesh(), ProblemStore(lambda _: None), VirtualClock()
        self.commits: list[Commit] = []
        self.batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), self.commits.append)
        self.server = McpServer()
        self._named: dict[str, Named] = {}
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
            McpEndpoint(address, self._plain_text),
            client,
            self.source.types,
            receive,
            self.source.told,
            Backoff(0.001, 0.02),
            random.Random(1),
        )
        await self.stream.start()
        await self.source.synced.wait()
        await until(lambda: self.server.settled(*self.source.types))

    async def _plain_text(self) -> None:
        return None

    def set(self, name: str, text: str) -> None:
        found = {
            (str(type_of(plain)), name_of(plain)): plain
            for plain in map(self._preferred, yaml.safe_load_all(text))
            if plain
        }
        old = self._named.get(name, {})
        self._named[name] = found
        self._send(found, {key: plain for key, plain in old.items() if key not in found})

    def remove(self, name: str) -> None:
        self._send({}, self._named.pop(name))

    def _preferred(self, plain: dict[str, Any]) -> dict[str, Any]:
        """An object in the version that is asked for: a server has all of them in it."""
        of = type_of(plain)
        kind = self.mesh.catalogue.find(GroupKind(of.group, of.kind))
        assert kind is not None
        return {**plain, "apiVersion": of._replace(version=kind.versions[0]).api_version}

    def _send(self, there: Named, gone: Named) -> None:
        types = {self.server.put(plain) for plain in there.values()} | {
            self.server.delete(plain) for plain in gone.values()
        }
        self.push(*types)

    def push(self, *types: str) -> None:
        """Has the server send what it has of some types, and waits until it was taken."""
        before = {of: self.server.sent[of] for of in types}
        self.server.push(*types)
        self.run(until(lambda: self.server.settled(*types) and all(self.server.sent[of] != before[of] for of in types)))
        self.clock.advance(1)

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._runner.run(work)

    def close(self) -> None:
        self.run(self._stop())
        self._runner.close()

    async def _stop(self) -> None:
        await self.stream.stop()
        await self.server.stop()

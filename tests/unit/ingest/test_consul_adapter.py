"""The example adapter: services of Consul are ServiceEntries of the control planes that name it as a source, as they come and go."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.ingest.batch import Batch
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.mcp_source import McpSource
from pilot.ingest.problems import ProblemStore
from pilot.lib.backoff import Backoff
from pilot.lib.duration import parse_duration
from pilot.mcp.stream import McpClient, McpEndpoint, McpStream
from pilot.mesh.tables.database import Mesh
from samples.consul import catalog_watch
from samples.consul.adapter import Adapter
from samples.consul.entries import build_entry
from testing.kube.kube_access import until
from testing.mesh.clock import VirtualClock
from testing.servers.consul import Consul, instance


class Followed:
    """A Consul, the adapter, and the tables of a control plane that follows it."""

    def __init__(self, consul: Consul, adapter: Adapter) -> None:
        self.consul, self.mesh, self.clock, self.problems = consul, Mesh(), VirtualClock(), ProblemStore(lambda _: None)
        batch = Batch(self.mesh, self.clock, parse_duration("10ms"), parse_duration("1s"), lambda _: None)
        kinds = [kind for kind in self.mesh.catalogue if kind.is_over_xds]
        self.source = McpSource("xds://consul", kinds, batch, Ledger(self.problems), 0, DocumentOrigin(), self.problems)
        client = McpClient("sidecar~127.0.0.1~a.istio-system~istio-system.svc.cluster.local", "istio-system")
        target = McpEndpoint(f"127.0.0.1:{adapter.port}", _plain_text)
        self.stream = McpStream(
            target,
            client,
            self.source.types,
            self.source.receive,
            self.source.told,
            Backoff(0.01, 0.05),
            random.Random(1),
        )

    def hosts(self) -> dict[str, list[tuple[str, dict[str, int]]]]:
        self.clock.advance(1)
        rows = (row.spec for _, row in SERVICE_ENTRY.table(self.mesh).rows())
        return {spec.hosts[0]: [(e.address, e.ports) for e in spec.endpoints] for spec in rows}


async def _plain_text() -> None:
    return None


@contextlib.asynccontextmanager
async def followed(**services: dict[str, Any]) -> AsyncIterator[Followed]:
    consul = Consul()
    for name, found in services.items():
        await consul.set(name, found)
    await consul.start()
    adapter = Adapter(consul.url, "127.0.0.1:0")
    await adapter.start()
    it = Followed(consul, adapter)
    await it.stream.start()
    await it.source.synced.wait()
    yield it
    await it.stream.stop()
    await adapter.stop()
    await consul.stop()


async def test_services_that_there_are_come_with_the_first_answer() -> None:
    async with followed(web=instance(), db=instance("10.0.0.2", 5432)) as it:
        assert it.hosts() == {
            "web.service.consul": [("10.0.0.1", {"tcp": 8080})],
            "db.service.consul": [("10.0.0.2", {"tcp": 5432})],
        }
        assert list(it.problems) == []


async def test_changes_are_followed_by_blocking_queries() -> None:
    async with followed(web=instance()) as it:
        await it.consul.set("web", instance(), instance("10.0.0.3", 9090))
        await until(
            lambda: it.hosts() == {"web.service.consul": [("10.0.0.1", {"tcp": 8080}), ("10.0.0.3", {"tcp": 9090})]}
        )
        await it.consul.set("api", instance("10.0.0.4"))
        await until(lambda: "api.service.consul" in it.hosts())
        await it.consul.set("web")
        await until(lambda: list(it.hosts()) == ["api.service.consul"])
        await it.consul.set("api", instance("10.0.0.4", status="critical"))
        await until(lambda: it.hosts() == {})
        assert all("wait=55s" in path for path in it.consul.asked)


async def test_what_was_known_stays_while_consul_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_watch, "RETRY_SECONDS", 0.01)
    async with followed(web=instance()) as it:
        await it.consul.stop()
        asked = len(it.consul.asked)
        it.consul.restart()
        await it.consul.set("web", instance("10.0.0.9"))
        assert it.hosts() == {"web.service.consul": [("10.0.0.1", {"tcp": 8080})]}
        await it.consul.start()
        await until(lambda: it.hosts() == {"web.service.consul": [("10.0.0.9", {"tcp": 8080})]})
        assert len(it.consul.asked) > asked


async def test_nobody_is_told_of_nothing_before_consul_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_watch, "RETRY_SECONDS", 0.01)
    consul = Consul()
    await consul.set("web", instance())
    await consul.start()
    await consul.stop()
    adapter = Adapter(consul.url, "127.0.0.1:0")
    starting = asyncio.create_task(adapter.start())
    await asyncio.sleep(0)
    assert adapter.port == 0
    await consul.start()
    await starting
    assert adapter.port
    await adapter.stop()
    await consul.stop()


def test_a_service_is_an_entry_with_what_consul_knows_of_its_instances() -> None:
    found = build_entry(
        "Web",
        [
            instance("", 8081, Meta={"protocol": "grpc", "version": "v2", "note": "two words"}, Weights={"Passing": 3}),
            instance("10.0.0.2", 8080, status="warning", Tags=["http"]),
            instance("10.0.0.3", 8080, status="critical"),
            instance("10.0.0.4", 0),
        ],
        "consul",
    )
    assert found is not None
    assert found["metadata"] == {"namespace": "consul", "name": "consul-web"}
    assert found["spec"] == {
        "hosts": ["web.service.consul"],
        "location": "MESH_INTERNAL",
        "resolution": "STATIC",
        "ports": [{"number": 8080, "name": "grpc", "protocol": "GRPC"}],
        "endpoints": [
            {
                "address": "10.9.0.1",
                "ports": {"grpc": 8081},
                "labels": {"protocol": "grpc", "version": "v2"},
                "locality": "dc1",
                "weight": 3,
            },
            {"address": "10.0.0.2", "ports": {"grpc": 8080}, "labels": {}, "locality": "dc1", "weight": 1},
        ],
    }
    assert build_entry("web", [instance(port=0)], "consul") is None

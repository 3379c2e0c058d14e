"""The sample adapter, which serves Consul services as ServiceEntries to control planes."""

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


class ConsulSource:
    """A Consul server, the adapter, and a control plane's tables that are filled from it."""

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
async def running_adapter(**services: dict[str, Any]) -> AsyncIterator[ConsulSource]:
    consul = Consul()
    for name, instances in services.items():
        await consul.set(name, instances)
    await consul.start()
    adapter = Adapter(consul.url, "127.0.0.1:0")
    await adapter.start()
    harness = ConsulSource(consul, adapter)
    await harness.stream.start()
    await harness.source.synced.wait()
    yield harness
    await harness.stream.stop()
    await adapter.stop()
    await consul.stop()


async def test_existing_services_are_in_the_first_response() -> None:
    async with running_adapter(web=instance(), db=instance("10.0.0.2", 5432)) as harness:
        assert harness.hosts() == {
            "web.service.consul": [("10.0.0.1", {"tcp": 8080})],
            "db.service.consul": [("10.0.0.2", {"tcp": 5432})],
        }
        assert list(harness.problems) == []


async def test_blocking_queries_watch_for_changes() -> None:
    async with running_adapter(web=instance()) as harness:
        await harness.consul.set("web", instance(), instance("10.0.0.3", 9090))
        await until(
            lambda: (
                harness.hosts() == {"web.service.consul": [("10.0.0.1", {"tcp": 8080}), ("10.0.0.3", {"tcp": 9090})]}
            )
        )
        await harness.consul.set("api", instance("10.0.0.4"))
        await until(lambda: "api.service.consul" in harness.hosts())
        await harness.consul.set("web")
        await until(lambda: list(harness.hosts()) == ["api.service.consul"])
        await harness.consul.set("api", instance("10.0.0.4", status="critical"))
        await until(lambda: harness.hosts() == {})
        assert all("wait=55s" in path for path in harness.consul.queries)


async def test_entries_remain_while_consul_is_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog_watch, "RETRY_SECONDS", 0.01)
    async with running_adapter(web=instance()) as harness:
        await harness.consul.stop()
        request_count = len(harness.consul.queries)
        harness.consul.restart()
        await harness.consul.set("web", instance("10.0.0.9"))
        assert harness.hosts() == {"web.service.consul": [("10.0.0.1", {"tcp": 8080})]}
        await harness.consul.start()
        await until(lambda: harness.hosts() == {"web.service.consul": [("10.0.0.9", {"tcp": 8080})]})
        assert len(harness.consul.queries) > request_count


async def test_adapter_does_not_listen_before_the_first_response(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_build_entry_from_consul_instances() -> None:
    entry = build_entry(
        "Web",
        [
            instance("", 8081, Meta={"protocol": "grpc", "version": "v2", "note": "two words"}, Weights={"Passing": 3}),
            instance("10.0.0.2", 8080, status="warning", Tags=["http"]),
            instance("10.0.0.3", 8080, status="critical"),
            instance("10.0.0.4", 0),
        ],
        "consul",
    )
    assert entry is not None
    assert entry["metadata"] == {"namespace": "consul", "name": "consul-web"}
    assert entry["spec"] == {
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

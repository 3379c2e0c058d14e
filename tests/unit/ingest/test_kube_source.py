"""Watched kinds: definitions that are added, changed and removed, revisions, and ignored kinds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.catalogue import CATALOGUE
from pilot.config.group_kind import NETWORKING, GroupKind, plural_of
from pilot.config.kinds import istio
from pilot.config.kinds.kubernetes import POD
from pilot.config.object import RegistryKey
from pilot.ingest.batch import Batch
from pilot.ingest.cluster.kube_source import KubeSource
from pilot.ingest.cluster.watched_kinds import read_kinds
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.definitions import definition, definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until, watch_options
from testing.mesh.clock import VirtualClock

GATEWAY = CATALOGUE.find(GroupKind(NETWORKING, "Gateway"))
assert GATEWAY is not None


def gateway(name: str, **labels: str) -> dict[str, Any]:
    servers = [{"hosts": ["*"], "port": {"number": 80, "name": "http", "protocol": "HTTP"}}]
    metadata = {"name": name, "namespace": "a", "labels": labels}
    return {"apiVersion": f"{NETWORKING}/v1", "kind": "Gateway", "metadata": metadata, "spec": {"servers": servers}}


def pod(name: str, phase: str = "Running") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "a"},
        "status": {"phase": phase, "podIP": "10.0.0.1"},
    }


class ApiServerReader:
    """A source that reads from an API server, and the tables filled by it."""

    def __init__(
        self,
        server: ApiServer,
        origin: DocumentOrigin = DocumentOrigin(),
        ignored: tuple[str, ...] = (),
        included: tuple[str, ...] = (),
    ) -> None:
        self.mesh, self.clock, self.problems = Mesh(), VirtualClock(), ProblemStore(lambda _: None)
        batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), lambda _: None)
        self.client = client_of(server)
        kinds = read_kinds(self.mesh.catalogue, ignored, included)
        self.source = KubeSource(
            self.client, batch, Ledger(self.problems), 0, origin, kinds, watch_options(), random.Random(1)
        )

    async def __aenter__(self) -> ApiServerReader:
        await self.source.start()
        async with asyncio.timeout(20):
            await self.source.synced()
        self.clock.advance(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.source.stop()
        await self.client.close()

    def gateways(self) -> set[str]:
        self.clock.advance(1)
        return {key.name for key, _ in istio.GATEWAY.table(self.mesh).rows()}

    def pods(self) -> set[str]:
        self.clock.advance(1)
        return {key.name for key, _ in POD.table(self.mesh).rows()}


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


async def test_kind_is_read_while_its_definition_exists(server: ApiServer) -> None:
    async with ApiServerReader(server) as reader:
        assert not reader.gateways()
        server.put(definition(GATEWAY))
        server.put(gateway("a"))
        await until(lambda: reader.gateways() == {"a"})
        server.delete(definition(GATEWAY))
        await until(lambda: not reader.gateways())
        server.put(definition(GATEWAY))
        server.put(gateway("b"))
        await until(lambda: reader.gateways() == {"b"})


async def test_watch_follows_a_change_of_the_served_version(
    server: ApiServer,
) -> None:
    def watched_versions() -> list[str]:
        return [
            request.version
            for request in server.requests
            if request.verb == "watch" and request.resource.plural == "gateways"
        ]

    server.put(definition(GATEWAY, "v1beta1"))
    server.put(gateway("a"))
    async with ApiServerReader(server) as reader:
        assert reader.gateways() == {"a"}
        await until(lambda: watched_versions() == ["v1beta1"])
        server.put(definition(GATEWAY, "v1", "v1alpha3"))
        server.put(gateway("b"))
        await until(lambda: reader.gateways() == {"a", "b"})
        await until(lambda: watched_versions()[-1] == "v1")
        await until(lambda: reader.source.watches[GATEWAY.id].informer.versions.keys() == {("a", "a"), ("a", "b")})


async def test_definition_without_a_supported_version_is_ignored(server: ApiServer) -> None:
    server.put(definition(GATEWAY, "v2"))
    async with ApiServerReader(server) as reader:
        assert not reader.gateways()
        server.put(definition(GATEWAY, "v1"))
        server.put(gateway("a"))
        await until(lambda: reader.gateways() == {"a"})


async def test_objects_of_another_revision_are_ignored(server: ApiServer) -> None:
    server.put(definition(GATEWAY))
    server.put(gateway("ours", **{"istio.io/rev": "canary"}))
    server.put(gateway("theirs", **{"istio.io/rev": "stable"}))
    server.put(gateway("everybodys"))
    async with ApiServerReader(server, DocumentOrigin(revision="canary")) as reader:
        assert reader.gateways() == {"ours", "everybodys"}
        server.put(gateway("ours", **{"istio.io/rev": "stable"}))
        await until(lambda: reader.gateways() == {"everybodys"})


async def test_failed_pods_are_ignored(server: ApiServer) -> None:
    server.put(pod("a"))
    server.put(pod("b", "Failed"))
    async with ApiServerReader(server) as reader:
        assert reader.pods() == {"a"}
        server.put(pod("a", "Failed"))
        await until(lambda: reader.pods() == set())


@pytest.mark.parametrize(
    ("ignored", "included", "is_read"),
    [
        ((f"*.{NETWORKING}",), (), False),
        ((f"gateways.{NETWORKING}",), (), False),
        ((f"*.{NETWORKING}",), (f"gateways.{NETWORKING}",), True),
        ((f"sidecars.{NETWORKING}",), (), True),
    ],
)
async def test_ignored_and_included_kinds(
    server: ApiServer, ignored: tuple[str, ...], included: tuple[str, ...], is_read: bool
) -> None:
    for plain in definitions():
        server.put(plain)
    server.put(gateway("a"))
    server.put(pod("a"))
    async with ApiServerReader(server, ignored=ignored, included=included) as reader:
        assert reader.gateways() == ({"a"} if is_read else set())
        assert reader.pods() == {"a"}


async def test_only_registry_kinds_of_a_remote_cluster_are_read(server: ApiServer) -> None:
    for plain in definitions():
        server.put(plain)
    server.put(gateway("a"))
    server.put(pod("a"))
    async with ApiServerReader(server, DocumentOrigin("west", own=False)) as reader:
        assert not reader.gateways()
        assert [key for key, _ in POD.table(reader.mesh).rows()] == [RegistryKey("west", "a", "a")]
        assert list(reader.problems) == []
        await reader.source.stop()
        await reader.source.forget()
        assert not reader.pods()


async def test_readiness_waits_for_every_kind(server: ApiServer) -> None:
    for plain in definitions():
        server.put(plain)
    server.faults.refuse(503, times=10, matching=lambda request: request.resource.plural == "sidecars")
    async with ApiServerReader(server) as reader:
        assert server.faults.spent
        assert all(watch.settled.is_set() for watch in reader.source.watches.values())
        assert len(reader.source.watches) == len(list(CATALOGUE))


def test_plural_of_a_kind() -> None:
    assert [
        plural_of(GroupKind("", name))
        for name in ("Ingress", "AuthorizationPolicy", "Gateway", "ServiceEntry", "Telemetry", "Pod")
    ] == [
        "ingresses",
        "authorizationpolicies",
        "gateways",
        "serviceentries",
        "telemetries",
        "pods",
    ]

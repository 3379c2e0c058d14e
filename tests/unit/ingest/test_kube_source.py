"""Which kinds are watch, and when: definitions that come, change and go; revisions; kinds that are left out."""

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
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.kube_source import KubeSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.ingest.watched_kinds import read_kinds
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.definitions import definition, definitions
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, pace, until
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


class Reading:
    """A source of an API server, and the tables that it fills."""

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
        self.source = KubeSource(self.client, batch, Ledger(self.problems), 0, origin, kinds, pace(), random.Random(1))

    async def __aenter__(self) -> Reading:
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
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


async def test_a_kind_is_read_when_it_is_defined_later_and_goes_with_its_definition(server: ApiServer) -> None:
    async with Reading(server) as it:
        assert not it.gateways()
        server.put(definition(GATEWAY))
        server.put(gateway("a"))
        await until(lambda: it.gateways() == {"a"})
        server.delete(definition(GATEWAY))
        await until(lambda: not it.gateways())
        server.put(definition(GATEWAY))
        server.put(gateway("b"))
        await until(lambda: it.gateways() == {"b"})


async def test_a_kind_is_read_in_the_version_that_is_served_and_loses_nothing_when_that_changes(
    server: ApiServer,
) -> None:
    def watched() -> list[str]:
        return [
            asked.version for asked in server.requests if asked.verb == "watch" and asked.resource.plural == "gateways"
        ]

    server.put(definition(GATEWAY, "v1beta1"))
    server.put(gateway("a"))
    async with Reading(server) as it:
        assert it.gateways() == {"a"}
        await until(lambda: watched() == ["v1beta1"])
        server.put(definition(GATEWAY, "v1", "v1alpha3"))
        server.put(gateway("b"))
        await until(lambda: it.gateways() == {"a", "b"})
        await until(lambda: watched()[-1] == "v1")
        await until(lambda: it.source.watches[GATEWAY.id].informer.versions.keys() == {("a", "a"), ("a", "b")})


async def test_a_definition_in_no_version_that_we_read_keeps_nobody_waiting(server: ApiServer) -> None:
    server.put(definition(GATEWAY, "v2"))
    async with Reading(server) as it:
        assert not it.gateways()
        server.put(definition(GATEWAY, "v1"))
        server.put(gateway("a"))
        await until(lambda: it.gateways() == {"a"})


async def test_objects_of_another_revision_are_left_out_and_go_when_they_become_so(server: ApiServer) -> None:
    server.put(definition(GATEWAY))
    server.put(gateway("ours", **{"istio.io/rev": "canary"}))
    server.put(gateway("theirs", **{"istio.io/rev": "stable"}))
    server.put(gateway("everybodys"))
    async with Reading(server, DocumentOrigin(revision="canary")) as it:
        assert it.gateways() == {"ours", "everybodys"}
        server.put(gateway("ours", **{"istio.io/rev": "stable"}))
        await until(lambda: it.gateways() == {"everybodys"})


async def test_pods_that_have_failed_are_not_there(server: ApiServer) -> None:
    server.put(pod("a"))
    server.put(pod("b", "Failed"))
    async with Reading(server) as it:
        assert it.pods() == {"a"}
        server.put(pod("a", "Failed"))
        await until(lambda: it.pods() == set())


@pytest.mark.parametrize(
    ("ignored", "included", "read"),
    [
        ((f"*.{NETWORKING}",), (), False),
        ((f"gateways.{NETWORKING}",), (), False),
        ((f"*.{NETWORKING}",), (f"gateways.{NETWORKING}",), True),
        ((f"sidecars.{NETWORKING}",), (), True),
    ],
)
async def test_kinds_are_ignored_and_included(
    server: ApiServer, ignored: tuple[str, ...], included: tuple[str, ...], read: bool
) -> None:
    for plain in definitions():
        server.put(plain)
    server.put(gateway("a"))
    server.put(pod("a"))
    async with Reading(server, ignored=ignored, included=included) as it:
        assert it.gateways() == ({"a"} if read else set())
        assert it.pods() == {"a"}


async def test_of_another_cluster_only_what_runs_in_it_is_read(server: ApiServer) -> None:
    for plain in definitions():
        server.put(plain)
    server.put(gateway("a"))
    server.put(pod("a"))
    async with Reading(server, DocumentOrigin("west", own=False)) as it:
        assert not it.gateways()
        assert [key for key, _ in POD.table(it.mesh).rows()] == [RegistryKey("west", "a", "a")]
        assert list(it.problems) == []
        await it.source.stop()
        await it.source.forget()
        assert not it.pods()


async def test_readiness_waits_for_every_kind(server: ApiServer) -> None:
    for plain in definitions():
        server.put(plain)
    server.faults.refuse(503, times=10, matching=lambda asked: asked.resource.plural == "sidecars")
    async with Reading(server) as it:
        assert server.faults.spent
        assert all(watch.settled.is_set() for watch in it.source.watches.values())
        assert len(it.source.watches) == len(list(CATALOGUE))


def test_plurals() -> None:
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

"""Mesh config and networks from ConfigMaps."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.ingest.batch import Batch
from pilot.ingest.kube_mesh import MESH_ROW, NETWORKS_ROW, MeshConfigMaps
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, pace, until
from testing.mesh.clock import VirtualClock


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    await made.start()
    yield made
    await made.stop()


class Rows:
    def __init__(self, server: ApiServer, *names: str) -> None:
        self.server, self.mesh, self.clock, self.problems = server, Mesh(), VirtualClock(), ProblemStore(lambda _: None)
        batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), lambda _: None)
        self.client = client_of(server)
        maps = (self.client, "istio-system", names, (MESH_ROW, NETWORKS_ROW), batch, self.problems)
        self.source = MeshConfigMaps(*maps, pace(), random.Random(1))

    def write(self, name: str, **data: str) -> None:
        metadata = {"name": name, "namespace": "istio-system"}
        self.server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    @property
    def config(self) -> MeshConfig:
        self.clock.advance(1)
        found: Any = self.mesh.mesh.peek("mesh")
        assert isinstance(found, MeshConfig)
        return found

    @property
    def networks(self) -> MeshNetworks:
        self.clock.advance(1)
        found: Any = self.mesh.mesh.peek("networks")
        assert isinstance(found, MeshNetworks)
        return found


@contextlib.asynccontextmanager
async def reading(it: Rows) -> AsyncIterator[Rows]:
    await it.source.start()
    try:
        async with asyncio.timeout(20):
            await it.source.synced()
        yield it
    finally:
        await it.source.stop()
        await it.client.close()


async def test_without_a_config_map_the_defaults_hold_and_it_may_come_and_go(server: ApiServer) -> None:
    async with reading(Rows(server, "istio")) as it:
        assert it.config == MeshConfig()
        assert it.networks == MeshNetworks()
        it.write("istio", mesh="trustDomain: one", meshNetworks="networks: {n: {endpoints: [{fromRegistry: west}]}}")
        await until(lambda: it.config.trust_domain == "one")
        assert list(it.networks.networks) == ["n"]
        it.write("istio", mesh="trustDomain: two")
        await until(lambda: it.config.trust_domain == "two")
        assert it.networks == MeshNetworks()
        server.delete(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}}
        )
        await until(lambda: it.config.trust_domain == "cluster.local")


async def test_a_wrong_config_leaves_what_was_there_and_is_told_of(server: ApiServer) -> None:
    it = Rows(server, "istio")
    it.write("istio", mesh="trustDomain: one")
    async with reading(it):
        for wrong in ("trustDomain: [", "noSuchField: 1", "connectTimeout: never"):
            it.write("istio", mesh=wrong)
            await until(lambda: len(it.problems) == 1)
            assert it.config.trust_domain == "one"
            it.write("istio", mesh="trustDomain: one")
            await until(lambda: len(it.problems) == 0)


async def test_a_wrong_config_at_first_is_the_defaults(server: ApiServer) -> None:
    it = Rows(server, "istio")
    it.write("istio", mesh="nonsense: 1")
    async with reading(it):
        assert it.config == MeshConfig()
        assert [(p.code, p.file) for p in it.problems] == [("unknown-field", "ConfigMap istio-system/istio")]


async def test_the_shared_config_lies_below_and_a_wrong_layer_is_left_out(server: ApiServer) -> None:
    it = Rows(server, "shared", "istio")
    it.write("shared", mesh="{trustDomain: shared, rootNamespace: below}")
    it.write("istio", mesh="trustDomain: own")
    async with reading(it):
        assert (it.config.trust_domain, it.config.root_namespace) == ("own", "below")
        it.write("istio", mesh="trustDomain: [")
        await until(lambda: it.config.trust_domain == "shared")
        it.write("istio", mesh="trustDomain: own")
        it.write("shared", mesh="noSuchField: 1")
        await until(lambda: (it.config.trust_domain, it.config.root_namespace) == ("own", "istio-system"))
        assert len(it.problems) == 1

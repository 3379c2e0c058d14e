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
from pilot.ingest.cluster.kube_mesh import MESH_ROW, NETWORKS_ROW, MeshConfigMaps
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import client_of, until, watch_options
from testing.mesh.clock import VirtualClock


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    await api_server.start()
    yield api_server
    await api_server.stop()


class MeshReader:
    """Mesh config and networks read from ConfigMaps of an API server."""

    def __init__(self, server: ApiServer, *names: str) -> None:
        self.server, self.mesh, self.clock, self.problems = server, Mesh(), VirtualClock(), ProblemStore(lambda _: None)
        batch = Batch(self.mesh, self.clock, parse_duration("100ms"), parse_duration("10s"), lambda _: None)
        self.client = client_of(server)
        maps = (self.client, "istio-system", names, (MESH_ROW, NETWORKS_ROW), batch, self.problems)
        self.source = MeshConfigMaps(*maps, watch_options(), random.Random(1))

    def write(self, name: str, **data: str) -> None:
        metadata = {"name": name, "namespace": "istio-system"}
        self.server.put({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})

    @property
    def config(self) -> MeshConfig:
        self.clock.advance(1)
        row: Any = self.mesh.mesh.peek("mesh")
        assert isinstance(row, MeshConfig)
        return row

    @property
    def networks(self) -> MeshNetworks:
        self.clock.advance(1)
        row: Any = self.mesh.mesh.peek("networks")
        assert isinstance(row, MeshNetworks)
        return row


@contextlib.asynccontextmanager
async def reading(reader: MeshReader) -> AsyncIterator[MeshReader]:
    await reader.source.start()
    try:
        async with asyncio.timeout(20):
            await reader.source.synced()
        yield reader
    finally:
        await reader.source.stop()
        await reader.client.close()


async def test_defaults_apply_without_a_config_map(server: ApiServer) -> None:
    async with reading(MeshReader(server, "istio")) as reader:
        assert reader.config == MeshConfig()
        assert reader.networks == MeshNetworks()
        reader.write(
            "istio", mesh="trustDomain: one", meshNetworks="networks: {n: {endpoints: [{fromRegistry: west}]}}"
        )
        await until(lambda: reader.config.trust_domain == "one")
        assert list(reader.networks.networks) == ["n"]
        reader.write("istio", mesh="trustDomain: two")
        await until(lambda: reader.config.trust_domain == "two")
        assert reader.networks == MeshNetworks()
        server.delete(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "istio", "namespace": "istio-system"}}
        )
        await until(lambda: reader.config.trust_domain == "cluster.local")


async def test_invalid_config_is_reported_and_keeps_the_last_valid_one(server: ApiServer) -> None:
    reader = MeshReader(server, "istio")
    reader.write("istio", mesh="trustDomain: one")
    async with reading(reader):
        for text in ("trustDomain: [", "noSuchField: 1", "connectTimeout: never"):
            reader.write("istio", mesh=text)
            await until(lambda: len(reader.problems) == 1)
            assert reader.config.trust_domain == "one"
            reader.write("istio", mesh="trustDomain: one")
            await until(lambda: len(reader.problems) == 0)


async def test_initially_invalid_config_leaves_the_defaults(server: ApiServer) -> None:
    reader = MeshReader(server, "istio")
    reader.write("istio", mesh="nonsense: 1")
    async with reading(reader):
        assert reader.config == MeshConfig()
        assert [(p.code, p.file) for p in reader.problems] == [("unknown-field", "ConfigMap istio-system/istio")]


async def test_shared_config_is_the_lower_layer(server: ApiServer) -> None:
    reader = MeshReader(server, "shared", "istio")
    reader.write("shared", mesh="{trustDomain: shared, rootNamespace: below}")
    reader.write("istio", mesh="trustDomain: own")
    async with reading(reader):
        assert (reader.config.trust_domain, reader.config.root_namespace) == ("own", "below")


@pytest.mark.parametrize("name", ["shared", "istio"])
async def test_invalid_layer_keeps_the_last_valid_config(server: ApiServer, name: str) -> None:
    reader = MeshReader(server, "shared", "istio")
    reader.write("shared", mesh="outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
    reader.write("istio", mesh="trustDomain: own")
    async with reading(reader):
        reader.write(name, mesh="noSuchField: 1")
        await until(lambda: len(reader.problems) == 1)
        assert reader.config.trust_domain == "own"
        assert reader.config.outbound_traffic_policy.mode == "REGISTRY_ONLY"


async def test_invalid_layer_is_ignored_before_the_first_valid_config(server: ApiServer) -> None:
    reader = MeshReader(server, "shared", "istio")
    reader.write("shared", mesh="trustDomain: shared")
    reader.write("istio", mesh="accessLogFile: /dev/stdout\nnoSuchField: 1")
    async with reading(reader):
        assert reader.config.trust_domain == "shared"
        assert [(p.path, p.line) for p in reader.problems] == [("noSuchField", 2)]

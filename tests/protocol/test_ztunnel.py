"""A ztunnel's stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from envoy.service.discovery.v3 import discovery_pb2

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.xds_types import ADDRESS, AUTHORIZATION, CLUSTER, LISTENER, WORKLOAD
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from protos.istio import workload_pb2
from testing.clients.ads import SECONDS, Client, Server, serving
from testing.mesh.objects import Plain, make, pod
from testing.mesh.world import rows_of

NODE = "ztunnel~10.0.0.1~zt-1.istio-system~istio-system.svc.cluster.local"
WEB = make("Service", "web", "{clusterIP: 10.96.0.1, selector: {app: web}, ports: [{name: http, port: 80}]}")
ONE, TWO = (pod(f"p{n}", f"10.1.0.{n}", labels="{app: web}") for n in (1, 2))
ELSEWHERE = pod("q", "10.1.0.9", "b", spec="{nodeName: n1}")
UIDS = [f"Kubernetes//Pod/a/p{n}" for n in (1, 2)]
SERVICE = "a/web.a.svc.cluster.local"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    mesh = Mesh(load([], {"PILOT_ENABLE_AMBIENT": "true"}).settings.mesh)
    async with serving(plan=proxy_plan, mesh=mesh) as running:
        put(running, WEB, ONE, TWO, ELSEWHERE)
        yield running


def put(server: Server, *objects: Plain, gone: bool = False) -> None:
    edits = [(server.db.tables[table], key, None if gone else row) for (table, key), row in rows_of(objects).items()]
    server.discovery.wake(server.db.commit(edits), {"config": 1})


class Ztunnel(Client):
    """A delta client that takes any type and keeps nothing."""

    async def subscribe(
        self, url: str, *names: str, taken_back: tuple[str, ...] = (), versions: dict[str, str] | None = None
    ) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=url,
            resource_names_subscribe=names,
            resource_names_unsubscribe=taken_back,
            initial_resource_versions=versions,
        )
        if self.first:
            request.node.id, self.first = self.node_id, False
            request.node.metadata.update(self.metadata)
        await self.call.write(request.SerializeToString())

    async def response(self, url: str = ADDRESS) -> Any:
        """The next response, of that type, acknowledged."""
        async with asyncio.timeout(SECONDS):
            found = discovery_pb2.DeltaDiscoveryResponse.FromString(await self.call.read())
        assert found.type_url == url
        await self.call.write(
            discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=found.nonce).SerializeToString()
        )
        return found


def names(response: Any) -> list[str]:
    return sorted(one.name for one in response.resources)


async def test_everything_and_then_what_changes(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS)
        first = await client.response()
        assert names(first) == sorted((*UIDS, "Kubernetes//Pod/b/q", SERVICE))
        assert all(one.version for one in first.resources)
        put(server, pod("p1", "10.1.0.1", labels="{app: web}", ready=False))
        assert names(await client.response()) == UIDS[:1]
        put(server, TWO, gone=True)
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == ([], UIDS[1:])


async def test_who_comes_back_is_sent_what_has_changed(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS)
        versions = {one.name: one.version for one in (await client.response()).resources}
    put(server, pod("p1", "10.1.0.1", labels="{app: web}", ready=False))
    put(server, TWO, gone=True)
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, versions=versions)
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == (UIDS[:1], UIDS[1:])


async def test_who_asks_for_nothing_gets_what_runs_on_its_node(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE, NODE_NAME="n1") as client:
        await client.subscribe(ADDRESS, "*", taken_back=("*",))
        assert names(await client.response()) == ["Kubernetes//Pod/b/q"]
        put(server, pod("r", "10.1.0.8", "b", spec="{nodeName: n1}"), pod("s", "10.1.0.7", "b", spec="{nodeName: n2}"))
        assert names(await client.response()) == ["Kubernetes//Pod/b/r"]


async def test_what_is_asked_for_by_name(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, "*", taken_back=("*",))
        assert names(await client.response()) == []
        await client.subscribe(ADDRESS, "/10.1.0.1")
        response = await client.response()
        assert [(one.name, list(one.aliases)) for one in response.resources] == [(UIDS[0], ["/10.1.0.1"])]
        await client.subscribe(ADDRESS, "/10.96.0.1")
        assert names(await client.response()) == sorted((UIDS[1], SERVICE))
        await client.subscribe(ADDRESS, "/10.9.9.9")
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == ([], ["/10.9.9.9"])
        put(server, pod("p3", "10.1.0.3", labels="{app: web}"), pod("x", "10.1.5.5"))
        assert names(await client.response()) == ["Kubernetes//Pod/a/p3"]
        put(
            server,
            make("Service", "web", "{clusterIP: 10.96.0.1, selector: {app: other}, ports: [{name: http, port: 80}]}"),
        )
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == ([UIDS[0]], [UIDS[1], "Kubernetes//Pod/a/p3"])


async def test_a_name_that_is_asked_for_again_is_answered_again(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, SERVICE, *UIDS)
        assert names(await client.response()) == sorted((*UIDS, SERVICE))
        await client.subscribe(ADDRESS, "/10.1.0.2")
        assert names(await client.response()) == UIDS[1:]


async def test_workloads_have_a_type_of_their_own(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(WORKLOAD)
        response = await client.response(WORKLOAD)
        found = [workload_pb2.Workload.FromString(one.resource.value).name for one in response.resources]
        assert sorted(found) == ["p1", "p2", "q"]


async def test_policies_come_and_go(server: Server) -> None:
    deny = make("AuthorizationPolicy", "p", "{action: DENY, rules: [{}]}")
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(AUTHORIZATION)
        assert names(await client.response(AUTHORIZATION)) == []
        put(server, deny)
        assert names(await client.response(AUTHORIZATION)) == ["a/p"]
        put(server, deny, gone=True)
        assert list((await client.response(AUTHORIZATION)).removed_resources) == ["a/p"]


async def test_a_ztunnel_gets_nothing_of_envoy(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        for url in (CLUSTER, LISTENER):
            await client.subscribe(url)
        await client.subscribe(ADDRESS)
        await client.response()


async def test_an_envoy_may_ask_who_its_peers_are(server: Server) -> None:
    async with Ztunnel(server, node_id="sidecar~10.0.0.2~p.a~a.svc.cluster.local") as client:
        await client.subscribe(WORKLOAD)
        response = await client.response(WORKLOAD)
        assert names(response) == sorted((*UIDS, "Kubernetes//Pod/b/q"))

"""Streams of a ztunnel."""

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
OTHER = pod("q", "10.1.0.9", "b", spec="{nodeName: n1}")
UIDS = [f"Kubernetes//Pod/a/p{n}" for n in (1, 2)]
SERVICE = "a/web.a.svc.cluster.local"


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    mesh = Mesh(load([], {"PILOT_ENABLE_AMBIENT": "true"}).settings.mesh)
    async with serving(plan=proxy_plan, mesh=mesh) as running:
        put(running, WEB, ONE, TWO, OTHER)
        yield running


def put(server: Server, *objects: Plain, removed: bool = False) -> None:
    edits = [(server.db.tables[table], key, None if removed else row) for (table, key), row in rows_of(objects).items()]
    server.discovery.wake(server.db.commit(edits), {"config": 1})


class Ztunnel(Client):
    """A stateless delta client for any type."""

    async def subscribe(
        self, url: str, *names: str, unsubscribed: tuple[str, ...] = (), versions: dict[str, str] | None = None
    ) -> None:
        request = discovery_pb2.DeltaDiscoveryRequest(
            type_url=url,
            resource_names_subscribe=names,
            resource_names_unsubscribe=unsubscribed,
            initial_resource_versions=versions,
        )
        if self.first:
            request.node.id, self.first = self.node_id, False
            request.node.metadata.update(self.metadata)
        await self.call.write(request.SerializeToString())

    async def response(self, url: str = ADDRESS) -> Any:
        """Acknowledge and return the next response, which must be of the type."""
        async with asyncio.timeout(SECONDS):
            message = discovery_pb2.DeltaDiscoveryResponse.FromString(await self.call.read())
        assert message.type_url == url
        await self.call.write(
            discovery_pb2.DeltaDiscoveryRequest(type_url=url, response_nonce=message.nonce).SerializeToString()
        )
        return message


def names(response: Any) -> list[str]:
    return sorted(item.name for item in response.resources)


async def test_first_response_is_complete_and_later_ones_are_changes(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS)
        first = await client.response()
        assert names(first) == sorted((*UIDS, "Kubernetes//Pod/b/q", SERVICE))
        assert all(item.version for item in first.resources)
        put(server, pod("p1", "10.1.0.1", labels="{app: web}", ready=False))
        assert names(await client.response()) == UIDS[:1]
        put(server, TWO, removed=True)
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == ([], UIDS[1:])


async def test_reconnecting_ztunnel_gets_only_changes(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS)
        versions = {item.name: item.version for item in (await client.response()).resources}
    put(server, pod("p1", "10.1.0.1", labels="{app: web}", ready=False))
    put(server, TWO, removed=True)
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, versions=versions)
        response = await client.response()
        assert (names(response), list(response.removed_resources)) == (UIDS[:1], UIDS[1:])


async def test_on_demand_ztunnel_gets_the_workloads_on_its_node(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE, NODE_NAME="n1") as client:
        await client.subscribe(ADDRESS, "*", unsubscribed=("*",))
        assert names(await client.response()) == ["Kubernetes//Pod/b/q"]
        put(server, pod("r", "10.1.0.8", "b", spec="{nodeName: n1}"), pod("s", "10.1.0.7", "b", spec="{nodeName: n2}"))
        assert names(await client.response()) == ["Kubernetes//Pod/b/r"]


async def test_addresses_on_demand(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, "*", unsubscribed=("*",))
        assert names(await client.response()) == []
        await client.subscribe(ADDRESS, "/10.1.0.1")
        response = await client.response()
        assert [(item.name, list(item.aliases)) for item in response.resources] == [(UIDS[0], ["/10.1.0.1"])]
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


async def test_repeated_subscription_is_answered_again(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(ADDRESS, SERVICE, *UIDS)
        assert names(await client.response()) == sorted((*UIDS, SERVICE))
        await client.subscribe(ADDRESS, "/10.1.0.2")
        assert names(await client.response()) == UIDS[1:]


async def test_workload_type(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(WORKLOAD)
        response = await client.response(WORKLOAD)
        workload_names = [workload_pb2.Workload.FromString(item.resource.value).name for item in response.resources]
        assert sorted(workload_names) == ["p1", "p2", "q"]


async def test_policy_is_added_and_removed(server: Server) -> None:
    deny = make("AuthorizationPolicy", "p", "{action: DENY, rules: [{}]}")
    async with Ztunnel(server, node_id=NODE) as client:
        await client.subscribe(AUTHORIZATION)
        assert names(await client.response(AUTHORIZATION)) == []
        put(server, deny)
        assert names(await client.response(AUTHORIZATION)) == ["a/p"]
        put(server, deny, removed=True)
        assert list((await client.response(AUTHORIZATION)).removed_resources) == ["a/p"]


async def test_envoy_types_are_not_answered(server: Server) -> None:
    async with Ztunnel(server, node_id=NODE) as client:
        for url in (CLUSTER, LISTENER):
            await client.subscribe(url)
        await client.subscribe(ADDRESS)
        await client.response()


async def test_envoy_may_request_workloads(server: Server) -> None:
    async with Ztunnel(server, node_id="sidecar~10.0.0.2~p.a~a.svc.cluster.local") as client:
        await client.subscribe(WORKLOAD)
        response = await client.response(WORKLOAD)
        assert names(response) == sorted((*UIDS, "Kubernetes//Pod/b/q"))

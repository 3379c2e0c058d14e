"""Fixtures for tests of the debug pages, on a small in-memory mesh."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.endpoint.v3 import endpoint_pb2
from envoy.extensions.transport_sockets.tls.v3 import secret_pb2

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.istio import DESTINATION_RULE
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.debug.application import application
from pilot.debug.pages import config_dump, explain
from pilot.debug.sources import Sources
from pilot.derive import Gather, derived, hub
from pilot.envoy.plans.resource_group import Group, PatchSide, ProxyPlan
from pilot.envoy.resource import Resource
from pilot.ingest.decode import decode_document
from pilot.ingest.mesh_config import decode_mesh_config
from pilot.lib.xds_types import BY_SHORT_NAME
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import Mesh
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.world import parse_objects

OBJECTS = """
apiVersion: v1
kind: Service
metadata: {name: tea, namespace: shop, creationTimestamp: "2024-01-02T03:04:05Z", labels: {team: leaves}}
spec: {clusterIP: 10.1.0.1, selector: {app: tea}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: cups, namespace: shop, creationTimestamp: "2024-01-03T00:00:00Z"}
spec: {clusterIP: 10.1.0.2, ports: [{name: tcp, port: 90}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: tea-1, namespace: shop, labels: {kubernetes.io/service-name: tea}}
addressType: IPv4
endpoints: [{addresses: [10.2.0.1], conditions: {ready: true}, targetRef: {kind: Pod, name: tea-1, namespace: shop}}]
ports: [{name: http, port: 8080, protocol: TCP}]
---
apiVersion: v1
kind: Pod
metadata: {name: tea-1, namespace: shop, labels: {app: tea}}
spec: {serviceAccountName: brewer, nodeName: node-1, containers: []}
status: {podIP: 10.2.0.1, podIPs: [{ip: 10.2.0.1}], phase: Running}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: tea, namespace: shop}
spec: {host: tea, trafficPolicy: {connectionPool: {tcp: {connectTimeout: 1500ms}}}}
"""
NODE = "sidecar~10.2.0.1~tea-1.shop~shop.svc.cluster.local"
PROXY = Proxy(
    type=NodeType.SIDECAR,
    id="tea-1.shop",
    ips=("10.2.0.1",),
    dns_domain="shop.svc.cluster.local",
    namespace="shop",
    metadata={"NAMESPACE": "shop", "LABELS": {"app": "tea"}, "CLUSTER_ID": "Kubernetes"},
    version="1.32.0",
)
SECRET = secret_pb2.Secret(
    name="default",
    tls_certificate={"private_key": {"inline_bytes": b"TOP"}, "certificate_chain": {"inline_bytes": b"OPEN"}},
)

# A separate, small plan, so that these tests do not depend on the content of real clusters.


@hub
def rule_hosts(db: Mesh) -> tuple[ObjectKey, ...]:
    return DESTINATION_RULE.table(db).all_keys()


@derived
def rule_of(db: Mesh, key: ObjectKey) -> Any:
    return next(
        (
            row
            for k in rule_hosts(db)
            if (row := DESTINATION_RULE.table(db).get(k)) is not None and row.spec.host == key.name
        ),
        None,
    )


@derived
def service_keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return SERVICE.table(db).all_keys()


@derived
def cluster(db: Mesh, key: RegistryKey) -> Resource | None:
    rule_of(db, key)
    if SERVICE.table(db).get(key) is None:
        return None
    return Resource.of(BY_SHORT_NAME["cds"], cluster_pb2.Cluster(name=f"outbound|80||{key.name}"))


@derived
def assignment(db: Mesh, key: RegistryKey) -> Resource | None:
    SERVICE.table(db).get(key)
    name = f"outbound|80||{key.name}"
    return Resource.of(BY_SHORT_NAME["eds"], endpoint_pb2.ClusterLoadAssignment(cluster_name=name), name=name)


@derived
def secrets(db: Mesh) -> dict[str, Resource]:
    return {"default": Resource.of(BY_SHORT_NAME["sds"], SECRET)}


clusters: Gather[RegistryKey, [], Resource] = Gather("clusters", service_keys, cluster)
assignments: Gather[RegistryKey, [], Resource] = Gather("assignments", service_keys, assignment)


def small_plan(db: Mesh, node_id: str) -> ProxyPlan:
    groups: dict[str, Any] = {"cds": clusters, "eds": assignments, "sds": secrets}
    return ProxyPlan({BY_SHORT_NAME[name]: (Group(fn, (), PatchSide.NONE),) for name, fn in groups.items()})


# -- fixtures --------------------------------------------------------------------------------------------------------------


def build_mesh() -> Mesh:
    mesh = Mesh()
    config, problems = decode_mesh_config([{"accessLogFile": "/dev/stdout", "connectTimeout": "3s"}])
    assert config is not None
    assert not problems
    decoded = [entry for plain in parse_objects(OBJECTS) for entry in decode_document(plain).entries]
    mesh.commit(
        [
            (mesh.mesh, "mesh", config),
            (mesh.proxies, NODE, PROXY),
            *((mesh.tables[e.table], e.key, e.object) for e in decoded),
        ]
    )
    return mesh


def connection(**fields: Any) -> FakeConnection:
    return FakeConnection(**{"id": "tea-1.shop-3", "proxy_key": NODE, "proxy": PROXY, **fields})


Ask = Callable[..., Awaitable[Any]]
PROBLEM = Problem(
    code="unknown-host",
    object=ObjectRef(GroupKind(NETWORKING, "VirtualService"), "shop", "tea"),
    path="spec.hosts[0]",
    message="no such host",
    file="a.yaml",
    line=7,
    severity=Severity.WARNING,
)


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> Sources:
    monkeypatch.setattr(config_dump, "proxy_plan", small_plan)
    monkeypatch.setattr(explain, "proxy_plan", small_plan)
    mesh, router = (
        build_mesh(),
        Proxy(type=NodeType.ROUTER, id="cup-1.mugs", ips=("10.2.0.9",), dns_domain="", namespace="mugs"),
    )
    mesh.commit([(mesh.proxies, "router~10.2.0.9~cup-1.mugs~", router)])
    other = connection(id="cup-1.mugs-4", proxy_key="router~10.2.0.9~cup-1.mugs~", proxy=router)
    return sources(mesh, connection(), other, problems=[PROBLEM])


@pytest.fixture
async def client(pages: Sources) -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async with TestClient(TestServer(application(pages))) as client:
        yield client


@pytest.fixture
def ask(client: TestClient[web.Request, web.Application]) -> Ask:
    async def get(path: str) -> Any:
        async with client.get(path) as response:
            assert response.status == 200, await response.text()
            return await response.json() if response.content_type == "application/json" else await response.text()

    return get


async def refusal(client: TestClient[web.Request, web.Application], path: str) -> tuple[int, str]:
    async with client.get(path) as response:
        return response.status, await response.text()

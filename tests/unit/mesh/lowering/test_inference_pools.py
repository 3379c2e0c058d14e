"""InferencePools: the shadow Service, the endpoint picker and status."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import pytest
from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2

from pilot.config.group_kind import INFERENCE
from pilot.config.kinds.gateway_api import HTTP_ROUTE, INFERENCE_POOL
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef
from pilot.controllers.shadow_service_controller import FIELD_MANAGER, ShadowServiceController, build_service
from pilot.derive import Node
from pilot.lib.tasks import cancel_tasks
from pilot.lib.xds_types import CLUSTER, ENDPOINT, LISTENER, ROUTE
from pilot.mesh.analysis.status import status_problems
from pilot.mesh.analysis.without_effect import WITHOUT_EFFECT
from pilot.mesh.lowering.gateway_api.inference_pools import shadow_name
from pilot.mesh.lowering.gateway_api.routes import RouteKey
from pilot.mesh.lowering.gateway_api.shadow_services import shadow_service
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.object_status import object_status
from pilot.mesh.status.plain_status import plain_status
from pilot.mesh.status.pool_status import pool_status
from pilot.mesh.status.route_status import route_status
from testing.apiserver.server import ApiServer
from testing.edits.gateway_objects import gateway_object
from testing.kube.kube_access import QUICK_WATCH, client_of, server_with_crds, until
from testing.mesh.objects import Plain, at, endpoint_slice, make
from testing.mesh.world import World, proxy, rows_of

KEY, REF = ObjectKey("m", "llm"), ObjectRef(INFERENCE_POOL.id, "m", "llm")
SHADOW = "llm-ip-487b9104"
CLUSTER_NAME = f"outbound|54321||{SHADOW}.m.svc.cluster.local"
PICKER = "name: picker, port: {number: 9002}"
LISTENER_SPEC = "{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
FIXED = (
    make("Service", "front", "{clusterIP: 10.96.0.1, selector: {app: f}, ports: [{name: http, port: 80}]}", "edge"),
    make("Pod", "f-0", "{}", "edge", labels="{app: f, gateway.networking.k8s.io/gateway-name: gw}"),
    gateway_object(
        "Gateway",
        "gw",
        f"gatewayClassName: istio, addresses: [{{type: Hostname, value: front}}], listeners: [{LISTENER_SPEC}]",
        "edge",
    ),
    make("Service", "picker", "{clusterIP: 10.96.0.2, ports: [{name: grpc, port: 9002}]}", "m"),
)


def pool(picker: str = PICKER, more: str = "", ports: str = "{number: 8000}, {number: 8001}") -> Plain:
    spec = f"selector: {{matchLabels: {{app: llm}}}}, targetPorts: [{ports}], endpointPickerRef: {{{picker}}}{more}"
    return gateway_object("InferencePool", "llm", spec, "m", api=f"{INFERENCE}/v1")


def route(name: str = "name: llm", rest: str = "", parents: str = "{name: gw, namespace: edge}") -> Plain:
    ref = f"{{group: {INFERENCE}, kind: InferencePool, {name}}}"
    return gateway_object("HTTPRoute", "chat", f"parentRefs: [{parents}], rules: [{{backendRefs: [{ref}{rest}]}}]", "m")


def shadow(**labels: str) -> Plain:
    defaults = {
        "internal.istio.io/service-semantics": "inferencepool",
        "istio.io/inferencepool-name": "llm",
        "istio.io/inferencepool-extension-service": "picker",
        "istio.io/inferencepool-extension-port": "9002",
        "istio.io/inferencepool-extension-failure-mode": "FailClose",
    }
    ports = "{name: http-0, port: 54321, targetPort: 8000}, {name: http-1, port: 54322, targetPort: 8001}"
    plain = make("Service", SHADOW, f"{{clusterIP: None, selector: {{app: llm}}, ports: [{ports}]}}", "m")
    plain["metadata"]["labels"] = {key: value for key, value in {**defaults, **labels}.items() if value}
    return plain


def world(*objects: Plain, enabled: bool = True) -> World:
    harness = World(environ={"ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"} if enabled else {})
    harness.set(rows_of((*FIXED, *objects)))
    return harness


def connect(harness: World) -> str:
    return harness.connect(
        proxy("router", "f-0", "edge", "10.1.0.1", {"app": "f", "gateway.networking.k8s.io/gateway-name": "gw"})
    )


def condition_of(conditions: tuple[StatusCondition, ...], type_: str) -> tuple[bool, str]:
    return next((c.status, c.reason) for c in conditions if c.type == type_)


def test_shadow_name_fits_any_pool_name() -> None:
    assert shadow_name("llm") == SHADOW
    long = shadow_name("a" * 80)
    assert (len(long), long[:51]) == (63, "a" * 51)
    assert shadow_name("a" * 81) != long


def test_cluster_merges_all_target_ports_and_overrides_the_host() -> None:
    slice_ = endpoint_slice(
        SHADOW, at("10.2.0.1"), ports="[{name: http-0, port: 8000}, {name: http-1, port: 8001}]", namespace="m"
    )
    harness = world(pool(), route(), shadow(), slice_)
    resources = harness.resources(connect(harness))
    assert [name for name in resources[CLUSTER] if SHADOW in name] == [CLUSTER_NAME]
    cluster, endpoints = resources[CLUSTER][CLUSTER_NAME].any, resources[ENDPOINT][CLUSTER_NAME].any
    assert b"override_host.v3.OverrideHost" in cluster
    assert b"x-gateway-destination-endpoint-served" in cluster
    assert endpoints.count(b"10.2.0.1") == 2
    sidecar = harness.resources(harness.connect(proxy("sidecar", "c", "m", "10.1.0.2")))
    assert b"OverrideHost" not in sidecar[CLUSTER][CLUSTER_NAME].any


@pytest.mark.parametrize(("mode", "opens"), [("FailOpen", True), ("FailClose", False), ("other", False)])
def test_pool_routes_use_the_endpoint_picker(mode: str, opens: bool) -> None:
    harness = world(pool(), route(), shadow(**{"istio.io/inferencepool-extension-failure-mode": mode}))
    (configuration,) = harness.resources(connect(harness))[ROUTE].values()
    assert b"outbound|9002||picker.m.svc.cluster.local" in configuration.any
    assert (
        ext_proc_pb2.ExtProcOverrides(failure_mode_allow={"value": True}).SerializeToString() in configuration.any
    ) == opens


def test_ext_proc_filter_exists_while_a_route_references_a_pool() -> None:
    harness = world(pool(), route(), shadow())
    node_id = connect(harness)
    has_filter = lambda: any(b"ext_proc" in resource.any for resource in harness.resources(node_id)[LISTENER].values())  # noqa: E731
    assert has_filter()
    spec = "parentRefs: [{name: gw, namespace: edge}], rules: [{backendRefs: [{name: picker, port: 9002}]}]"
    harness.set(rows_of([gateway_object("HTTPRoute", "chat", spec, "m")]))
    assert not has_filter()
    harness.set(rows_of([route()]))
    assert has_filter()


@pytest.mark.parametrize(
    ("objects", "reason"),
    [
        ((pool(), route(), shadow()), "ResolvedRefs"),
        ((pool(), route()), "BackendNotFound"),
        ((route(), shadow()), "BackendNotFound"),
        ((pool(), route("name: llm.m"), shadow()), "InvalidDestination"),
        ((pool(), route(), shadow(**{"istio.io/inferencepool-extension-service": ""})), "InvalidDestination"),
        ((pool(), route(), shadow(**{"istio.io/inferencepool-extension-port": "many"})), "InvalidDestination"),
        ((pool(), route(), shadow(**{"istio.io/inferencepool-extension-port": "70000"})), "InvalidDestination"),
    ],
)
def test_routes_to_pools(objects: tuple[Plain, ...], reason: str) -> None:
    harness = world(*objects)
    conditions = route_status(harness.mesh, RouteKey(HTTP_ROUTE.id, "m", "chat"))[0].conditions
    assert condition_of(conditions, "ResolvedRefs") == (reason == "ResolvedRefs", reason)
    assert not harness.failures


@pytest.mark.parametrize(
    ("picker", "parents", "accepted", "resolved"),
    [
        (PICKER, "{name: gw, namespace: edge}", "Accepted", "ResolvedRefs"),
        (PICKER, "{name: gw, namespace: edge, sectionName: none}", "HTTPRouteNotAccepted", "ResolvedRefs"),
        ("name: gone, port: {number: 1}", "{name: gw, namespace: edge}", "Accepted", "InvalidExtensionRef"),
        ("name: picker", "{name: gw, namespace: edge}", "Accepted", "InvalidExtensionRef"),
        ("port: {number: 1}", "{name: gw, namespace: edge}", "Accepted", "InvalidExtensionRef"),
        (
            "kind: Pod, name: picker, port: {number: 1}",
            "{name: gw, namespace: edge}",
            "Accepted",
            "InvalidExtensionRef",
        ),
    ],
)
def test_pool_status(picker: str, parents: str, accepted: str, resolved: str) -> None:
    harness = world(pool(picker), route(parents=parents))
    statuses = pool_status(harness.mesh, KEY)
    assert statuses is not None
    (entry,) = statuses
    assert (entry.parent.name, entry.parent.namespace) == ("gw", "edge")
    assert condition_of(entry.conditions, "Accepted") == (accepted == "Accepted", accepted)
    assert condition_of(entry.conditions, "ResolvedRefs") == (resolved == "ResolvedRefs", resolved)
    has_problem = accepted != "Accepted" or resolved != "ResolvedRefs"
    assert [problem.path for problem in status_problems(harness.mesh, REF)] == ["spec.endpointPickerRef"] * has_problem
    status = object_status(harness.mesh, REF)
    assert status is not None
    assert (
        plain_status(status, INFERENCE_POOL.id, "istio.io/gateway-controller")["parents"][0]["parentRef"]["kind"]
        == "Gateway"
    )


def test_pools_have_no_effect_when_disabled() -> None:
    harness = world(pool(), route(), shadow(), enabled=False)
    assert object_status(harness.mesh, REF) is None
    conditions = route_status(harness.mesh, RouteKey(HTTP_ROUTE.id, "m", "chat"))[0].conditions
    assert condition_of(conditions, "ResolvedRefs") == (False, "InvalidKind")
    assert [key.kind for key in WITHOUT_EFFECT.keys(harness.mesh)] == [INFERENCE_POOL.id]


def test_shadow_service_exists_while_a_gateway_routes_to_the_pool() -> None:
    harness = world(pool(more=", appProtocol: kubernetes.io/h2c"), route())
    desired = shadow_service(harness.mesh, KEY)
    assert desired is not None
    assert not desired.is_current
    harness.set(rows_of([build_service(KEY, desired, "u-1", "v1")]))
    current = shadow_service(harness.mesh, KEY)
    assert current is not None
    assert current.is_current
    harness.set(rows_of([make("Service", SHADOW, "{clusterIP: None, ports: [{name: http, port: 1}]}", "m")]))
    foreign = shadow_service(harness.mesh, KEY)
    assert foreign is not None
    assert foreign.is_current, "a Service that was not created for a pool is not changed"
    harness.set(dict.fromkeys(rows_of([route()])))
    assert shadow_service(harness.mesh, KEY) is None


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with server_with_crds() as api_server:
        yield api_server


async def test_controller_recreates_a_deleted_shadow_service(server: ApiServer) -> None:
    stored = server.put(pool()).plain
    harness = world(pool(), route())
    path = lambda key: f"/apis/{INFERENCE}/v1/namespaces/{key.namespace}/inferencepools/{key.name}"  # noqa: E731
    client = client_of(server)
    writer = ShadowServiceController(client, harness.mesh, path, lambda _: True, QUICK_WATCH, random.Random(1))
    task = asyncio.create_task(writer.run())
    await until(lambda: server.get("", "services", "m", SHADOW) is not None)
    service = server.get("", "services", "m", SHADOW)
    assert service is not None
    assert service["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    assert [entry["manager"] for entry in service["metadata"]["managedFields"]] == [FIELD_MANAGER]
    assert [(port["port"], port["targetPort"]) for port in service["spec"]["ports"]] == [(54321, 8000), (54322, 8001)]
    assert (service["spec"]["clusterIP"], service["spec"]["selector"]) == ("None", {"app": "llm"})
    writer.on_commit(commit(harness, service))
    server.delete(service)
    writer.on_commit(commit(harness, service, deleted=True))
    await until(lambda: server.get("", "services", "m", SHADOW) is not None)
    await cancel_tasks(task)
    await client.close()


def commit(harness: World, plain: Plain, deleted: bool = False) -> list[Node]:
    """Commit an object as stored by the API server, or its deletion, and return the nodes reached."""
    rows = rows_of([plain])
    return harness.mesh.commit(
        (harness.mesh.tables[table], key, None if deleted else row) for (table, key), row in rows.items()
    )


def test_pool_with_only_grpc_routes_is_not_accepted() -> None:
    ref = f"{{group: {INFERENCE}, kind: InferencePool, name: llm}}"
    calls = gateway_object(
        "GRPCRoute", "calls", f"parentRefs: [{{name: gw, namespace: edge}}], rules: [{{backendRefs: [{ref}]}}]", "m"
    )
    (entry,) = pool_status(world(pool(), calls).mesh, KEY) or ()
    accepted = next(c for c in entry.conditions if c.type == "Accepted")
    assert (accepted.status, accepted.reason, accepted.message) == (
        False,
        "HTTPRouteNotAccepted",
        "No HTTPRoute references this InferencePool",
    )

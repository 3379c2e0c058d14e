"""InferencePools: the Service of each, who picks its endpoints, and what its status says."""

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
from testing.kube.kube_access import QUICK, client_of, defined_server, until
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
    found = {
        "internal.istio.io/service-semantics": "inferencepool",
        "istio.io/inferencepool-name": "llm",
        "istio.io/inferencepool-extension-service": "picker",
        "istio.io/inferencepool-extension-port": "9002",
        "istio.io/inferencepool-extension-failure-mode": "FailClose",
    }
    ports = "{name: http-0, port: 54321, targetPort: 8000}, {name: http-1, port: 54322, targetPort: 8001}"
    made = make("Service", SHADOW, f"{{clusterIP: None, selector: {{app: llm}}, ports: [{ports}]}}", "m")
    made["metadata"]["labels"] = {key: value for key, value in {**found, **labels}.items() if value}
    return made


def world(*objects: Plain, enabled: bool = True) -> World:
    made = World(environ={"ENABLE_GATEWAY_API_INFERENCE_EXTENSION": "true"} if enabled else {})
    made.set(rows_of((*FIXED, *objects)))
    return made


def connect(made: World) -> str:
    return made.connect(
        proxy("router", "f-0", "edge", "10.1.0.1", {"app": "f", "gateway.networking.k8s.io/gateway-name": "gw"})
    )


def told(conditions: tuple[StatusCondition, ...], type_: str) -> tuple[bool, str]:
    return next((c.status, c.reason) for c in conditions if c.type == type_)


def test_the_name_of_the_service_is_short_enough_for_any_pool() -> None:
    assert shadow_name("llm") == SHADOW
    long = shadow_name("a" * 80)
    assert (len(long), long[:51]) == (63, "a" * 51)
    assert shadow_name("a" * 81) != long


def test_one_cluster_has_the_endpoints_of_all_ports_and_takes_the_one_that_is_picked() -> None:
    slice_ = endpoint_slice(
        SHADOW, at("10.2.0.1"), ports="[{name: http-0, port: 8000}, {name: http-1, port: 8001}]", namespace="m"
    )
    made = world(pool(), route(), shadow(), slice_)
    found = made.resources(connect(made))
    assert [name for name in found[CLUSTER] if SHADOW in name] == [CLUSTER_NAME]
    cluster, endpoints = found[CLUSTER][CLUSTER_NAME].any, found[ENDPOINT][CLUSTER_NAME].any
    assert b"override_host.v3.OverrideHost" in cluster
    assert b"x-gateway-destination-endpoint-served" in cluster
    assert endpoints.count(b"10.2.0.1") == 2
    sidecar = made.resources(made.connect(proxy("sidecar", "c", "m", "10.1.0.2")))
    assert b"OverrideHost" not in sidecar[CLUSTER][CLUSTER_NAME].any


@pytest.mark.parametrize(("mode", "opens"), [("FailOpen", True), ("FailClose", False), ("other", False)])
def test_the_routes_of_a_pool_ask_its_picker(mode: str, opens: bool) -> None:
    made = world(pool(), route(), shadow(**{"istio.io/inferencepool-extension-failure-mode": mode}))
    (configuration,) = made.resources(connect(made))[ROUTE].values()
    assert b"outbound|9002||picker.m.svc.cluster.local" in configuration.any
    assert (
        ext_proc_pb2.ExtProcOverrides(failure_mode_allow={"value": True}).SerializeToString() in configuration.any
    ) == opens


def test_the_filter_is_there_as_long_as_a_route_of_its_gateway_leads_to_a_pool() -> None:
    made = world(pool(), route(), shadow())
    node_id = connect(made)
    has_filter = lambda: any(b"ext_proc" in resource.any for resource in made.resources(node_id)[LISTENER].values())  # noqa: E731
    assert has_filter()
    elsewhere = "parentRefs: [{name: gw, namespace: edge}], rules: [{backendRefs: [{name: picker, port: 9002}]}]"
    made.set(rows_of([gateway_object("HTTPRoute", "chat", elsewhere, "m")]))
    assert not has_filter()
    made.set(rows_of([route()]))
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
    made = world(*objects)
    conditions = route_status(made.mesh, RouteKey(HTTP_ROUTE.id, "m", "chat"))[0].conditions
    assert told(conditions, "ResolvedRefs") == (reason == "ResolvedRefs", reason)
    assert not made.failures


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
def test_the_status_of_a_pool(picker: str, parents: str, accepted: str, resolved: str) -> None:
    made = world(pool(picker), route(parents=parents))
    found = pool_status(made.mesh, KEY)
    assert found is not None
    (entry,) = found
    assert (entry.parent.name, entry.parent.namespace) == ("gw", "edge")
    assert told(entry.conditions, "Accepted") == (accepted == "Accepted", accepted)
    assert told(entry.conditions, "ResolvedRefs") == (resolved == "ResolvedRefs", resolved)
    wrong = accepted != "Accepted" or resolved != "ResolvedRefs"
    assert [problem.path for problem in status_problems(made.mesh, REF)] == ["spec.endpointPickerRef"] * wrong
    status = object_status(made.mesh, REF)
    assert status is not None
    assert (
        plain_status(status, INFERENCE_POOL.id, "istio.io/gateway-controller")["parents"][0]["parentRef"]["kind"]
        == "Gateway"
    )


def test_pools_have_no_effect_unless_they_are_switched_on() -> None:
    made = world(pool(), route(), shadow(), enabled=False)
    assert object_status(made.mesh, REF) is None
    conditions = route_status(made.mesh, RouteKey(HTTP_ROUTE.id, "m", "chat"))[0].conditions
    assert told(conditions, "ResolvedRefs") == (False, "InvalidKind")
    assert [key.kind for key in WITHOUT_EFFECT.keys(made.mesh)] == [INFERENCE_POOL.id]


def test_a_pool_has_a_service_while_a_gateway_has_a_route_to_it() -> None:
    made = world(pool(more=", appProtocol: kubernetes.io/h2c"), route())
    wanted = shadow_service(made.mesh, KEY)
    assert wanted is not None
    assert not wanted.is_current
    made.set(rows_of([build_service(KEY, wanted, "u-1", "v1")]))
    standing = shadow_service(made.mesh, KEY)
    assert standing is not None
    assert standing.is_current
    made.set(rows_of([make("Service", SHADOW, "{clusterIP: None, ports: [{name: http, port: 1}]}", "m")]))
    foreign = shadow_service(made.mesh, KEY)
    assert foreign is not None
    assert foreign.is_current, "a Service that nobody made for a pool is left alone"
    made.set(dict.fromkeys(rows_of([route()])))
    assert shadow_service(made.mesh, KEY) is None


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with defined_server() as made:
        yield made


async def test_the_service_is_written_for_the_pool_and_again_when_it_is_taken_away(server: ApiServer) -> None:
    stored = server.put(pool()).plain
    made = world(pool(), route())
    path = lambda key: f"/apis/{INFERENCE}/v1/namespaces/{key.namespace}/inferencepools/{key.name}"  # noqa: E731
    client = client_of(server)
    writer = ShadowServiceController(client, made.mesh, path, lambda _: True, QUICK, random.Random(1))
    task = asyncio.create_task(writer.run())
    await until(lambda: server.get("", "services", "m", SHADOW) is not None)
    written = server.get("", "services", "m", SHADOW)
    assert written is not None
    assert written["metadata"]["ownerReferences"][0]["uid"] == stored["metadata"]["uid"]
    assert [entry["manager"] for entry in written["metadata"]["managedFields"]] == [FIELD_MANAGER]
    assert [(port["port"], port["targetPort"]) for port in written["spec"]["ports"]] == [(54321, 8000), (54322, 8001)]
    assert (written["spec"]["clusterIP"], written["spec"]["selector"]) == ("None", {"app": "llm"})
    writer.on_commit(commit(made, written))
    server.delete(written)
    writer.on_commit(commit(made, written, gone=True))
    await until(lambda: server.get("", "services", "m", SHADOW) is not None)
    await cancel_tasks(task)
    await client.close()


def commit(made: World, plain: Plain, gone: bool = False) -> list[Node]:
    """Commits an object as the API server has it, or takes it back; returns what was reached."""
    rows = rows_of([plain])
    return made.mesh.commit((made.mesh.tables[table], key, None if gone else row) for (table, key), row in rows.items())


def test_a_pool_that_only_calls_are_led_to_is_told_that_no_http_route_leads_there() -> None:
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

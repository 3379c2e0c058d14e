"""Many HTTPRoutes with the same host: an edit builds only its own routes, and all routes are those of a new mesh."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any
from unittest import mock

import pytest
from google.protobuf import any_pb2, json_format

from pilot.envoy.route import virtual_service_routes
from pilot.lib.xds_types import ROUTE
from testing.mesh.objects import Plain, make, pod
from testing.mesh.world import World, proxy, rows_of

API = "gateway.networking.k8s.io/v1"
NAME = "gateway.networking.k8s.io/gateway-name"
ROUTER = proxy("router", "gw-0", "a", "10.1.0.1", {NAME: "gw"})
COUNT = 30
BASE = (
    make("GatewayClass", "istio", "{controllerName: istio.io/gateway-controller}", "", apiVersion=API),
    make(
        "Gateway", "gw", "{gatewayClassName: istio, listeners: [{name: x, port: 80, protocol: HTTP}]}", apiVersion=API
    ),
    make("Service", "gw-istio", f"{{selector: {{{NAME}: gw}}, ports: [{{name: http, port: 80}}]}}"),
    make("Service", "web", "{ports: [{name: http, port: 80}, {name: other, port: 81}]}"),
    make("Service", "api", "{ports: [{name: http, port: 80}]}"),
    make("Service", "late", "{ports: [{name: http, port: 80}]}"),
    pod("gw-0", "10.1.0.1", labels=f"{{{NAME}: gw}}"),
)


def route(number: int, path: str, port: int = 80, backend: str = "web") -> Plain:
    match = f"matches: [{{path: {{type: PathPrefix, value: {path}}}}}]"
    rules = f"rules: [{{{match}, backendRefs: [{{name: {backend}, port: {port}}}]}}]"
    spec = f"{{parentRefs: [{{name: gw}}], hostnames: [a.example.com], {rules}}}"
    return make("HTTPRoute", f"r{number:02}", spec, apiVersion=API)


def routes_of(world: World, node_id: str) -> Mapping[str, Any]:
    resources = world.resources(node_id)
    return {url: {name: r.any for name, r in by_name.items()} for url, by_name in resources.items()}


@pytest.fixture
def built() -> Any:
    """The calls that build a route."""
    function = virtual_service_routes.build_route
    with mock.patch.object(virtual_service_routes, "build_route", wraps=function) as spy:
        yield spy


@pytest.mark.parametrize(
    ("edit", "count"),
    [
        (route(7, "/edited"), 1),
        (route(COUNT, "/added"), 1),
        (route(COUNT, "/added", backend="late"), 1),
        (make("Service", "api", "{ports: [{name: http, port: 80}, {name: more, port: 81}]}"), 1),
        (make("Service", "api", "{type: ExternalName, externalName: x.example.com, ports: [{port: 80}]}"), 1),
        (make("Service", "web", "{ports: [{name: grpc, port: 80}, {name: other, port: 81}]}"), 0),
        (
            make(
                "DestinationRule",
                "web",
                "{host: web, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}",
            ),
            COUNT - 1,  # one route has another backend
        ),
    ],
)
def test_edit_builds_the_routes_that_it_affects(built: mock.Mock, edit: Plain, count: int) -> None:
    world = World()
    backends = {3: "api"}
    routes = (route(number, f"/p{number}", backend=backends.get(number, "web")) for number in range(COUNT))
    world.set(rows_of((*BASE, *routes)))
    node_id = world.connect(ROUTER)
    routes_of(world, node_id)
    assert built.call_count == COUNT
    built.reset_mock()
    world.set(rows_of((edit,)))
    routes_of(world, node_id)
    assert built.call_count == count


def test_routes_of_several_namespaces_are_merged_by_how_specific_they_are() -> None:
    listener = "{name: x, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}"
    gateway = make("Gateway", "gw", f"{{gatewayClassName: istio, listeners: [{listener}]}}", apiVersion=API)
    spec = (
        "{{parentRefs: [{{name: gw, namespace: a}}], hostnames: [a.example.com], "
        "rules: [{{matches: [{{path: {{type: PathPrefix, value: /{0}}}}}], backendRefs: [{{name: web, port: 80}}]}}]}}"
    )
    lengths = random.Random(7).sample(range(1, COUNT + 1), COUNT)
    routes = [
        make("HTTPRoute", f"r{n:02}", spec.format("x" * length), "abc"[n % 3], apiVersion=API)
        for n, length in enumerate(lengths)
    ]
    world = World()
    world.set(rows_of((*BASE, gateway, *routes)))
    (packed,) = routes_of(world, world.connect(ROUTER))[ROUTE].values()
    hosts = json_format.MessageToDict(any_pb2.Any.FromString(packed))["virtualHosts"]
    paths = [route["match"]["pathSeparatedPrefix"] for host in hosts for route in host["routes"]]
    assert paths == [f"/{'x' * length}" for length in range(COUNT, 0, -1)]


def test_routes_after_random_edits_are_those_of_a_new_mesh() -> None:
    rng = random.Random(7)
    objects = {f"r{number}": route(number, f"/p{number}") for number in range(COUNT)}
    world = World()
    world.set(rows_of((*BASE, *objects.values())))
    node_id = world.connect(ROUTER)
    for step in range(40):
        number = rng.randrange(COUNT + 3)
        edits = (
            (f"/s{step}", 80),
            (f"/t{step}", 80, rng.choice(("api", "late"))),
            (f"/p{number}", rng.choice((80, 81, 9))),
            ("/", 80),
            None,
        )
        edit = route(number, *chosen) if (chosen := rng.choice(edits)) is not None else None
        key = f"r{number}"
        before = objects.pop(key, None)
        if edit is not None:
            objects[key] = edit
        rows = rows_of((edit,)) if edit is not None else dict.fromkeys(rows_of((before,) if before else ()))
        hashed = "{host: web, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}"
        if rng.random() < 0.2:
            objects["rule"] = make("DestinationRule", "web", hashed)
            rows |= rows_of((objects["rule"],))
        world.set(rows)
        scratch = World()
        scratch.set(rows_of((*BASE, *objects.values())))
        assert routes_of(world, node_id) == routes_of(scratch, scratch.connect(ROUTER))

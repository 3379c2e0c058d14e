"""Virtual hosts of sidecars: on which ports hosts of VirtualServices are, and what the default route of a service is hashed by."""

from __future__ import annotations

from typing import Any

from google.protobuf import any_pb2, json_format

from pilot.lib.xds_types import ROUTE
from testing.mesh.world import World, proxy

CLIENT = proxy("sidecar", "job-0", "shop", "10.0.0.1", {"app": "job"})
SERVICES = "".join(
    f"""
---
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: shop, creationTimestamp: "2025-01-01T00:00:01Z"}}
spec: {{clusterIP: 10.96.0.{i}, ports: [{{name: http, port: 80}}, {{name: http-more, port: 8080}}]}}
"""
    for i, name in enumerate(("web", "api"), 1)
)


def istio(kind: str, name: str, spec: str, age: int = 2) -> str:
    return f"""
---
apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: shop, creationTimestamp: "2025-01-01T00:00:0{age}Z"}}
spec: {{{spec}}}
"""


def virtual_hosts(objects: str, name: str, mesh: str = "") -> dict[str, Any]:
    """Returns the virtual hosts of the client's route configuration of that name, by name."""
    world = World(mesh)
    world.apply(SERVICES + objects)
    found = world.resources(world.connect(CLIENT))[ROUTE]
    assert not world.failures
    plain = json_format.MessageToDict(any_pb2.Any.FromString(found[name].any))
    return {v["name"]: v for v in plain["virtualHosts"]}


def hashed_by(route: dict[str, Any]) -> list[Any]:
    return [h["header"]["headerName"] for h in route["route"].get("hashPolicy", ())]


def rule(host: str) -> str:
    return istio(
        "DestinationRule",
        host,
        f"host: {host}, trafficPolicy: {{loadBalancer: {{consistentHash: {{httpHeaderName: by-{host}}}}}}}",
    )


CONDITIONAL = istio(
    "VirtualService",
    "web",
    "hosts: [web], http: [{match: [{sourceLabels: {app: other}}], route: [{destination: {host: api, port: {number: 80}}}]}]",
)


def test_a_route_is_hashed_as_the_rule_for_a_wildcard_says() -> None:
    routed = istio(
        "VirtualService", "web", "hosts: [web], http: [{route: [{destination: {host: api, port: {number: 80}}}]}]"
    )
    anything = (
        "host: '*.shop.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: by-any}}}"
    )
    (route,) = virtual_hosts(routed + istio("DestinationRule", "any", anything), "80")["web.shop.svc.cluster.local:80"][
        "routes"
    ]
    assert hashed_by(route) == ["by-any"]


def test_the_default_route_is_not_hashed_by_what_rules_for_others_lead_to() -> None:
    found = virtual_hosts(CONDITIONAL + rule("api"), "80")
    (route,) = found["web.shop.svc.cluster.local:80"]["routes"]
    assert route["name"] == "default"
    assert hashed_by(route) == []
    assert hashed_by(found["api.shop.svc.cluster.local:80"]["routes"][0]) == ["by-api"]


def test_the_default_route_behind_conditional_rules_is_hashed_by_its_own_service() -> None:
    found = virtual_hosts(CONDITIONAL + rule("api") + rule("web"), "8080")
    (route,) = found["web.shop.svc.cluster.local:8080"]["routes"]
    assert hashed_by(route) == ["by-web"]


WILD = istio(
    "ServiceEntry",
    "wild",
    "hosts: ['*.wild.com'], ports: [{number: 8080, name: http, protocol: HTTP}], resolution: NONE",
)
REDIRECT = "http: [{redirect: {uri: /r}}]"


def test_unknown_hosts_are_on_the_ports_of_known_ones() -> None:
    objects = WILD + istio("VirtualService", "one", f"hosts: ['*.wild.com', ghost.com], {REDIRECT}")
    assert "ghost.com:8080" in virtual_hosts(objects, "8080")


def test_a_wildcard_counts_for_the_oldest_virtual_service_alone() -> None:
    older = istio("VirtualService", "older", f"hosts: ['*.wild.com'], {REDIRECT}", age=1)
    objects = WILD + older + istio("VirtualService", "one", f"hosts: ['*.wild.com', ghost.com], {REDIRECT}")
    assert "ghost.com:8080" not in virtual_hosts(objects, "8080")
    assert "ghost.com:80" in virtual_hosts(objects, "80")


def test_a_destination_without_a_port_has_the_only_one_of_its_service_behind_a_forward_proxy_too() -> None:
    objects = istio(
        "ServiceEntry", "one", "hosts: [one.com], ports: [{number: 9000, name: http, protocol: HTTP}], resolution: DNS"
    )
    objects += istio("VirtualService", "web", "hosts: [web], http: [{route: [{destination: {host: one.com}}]}]")
    found = virtual_hosts(objects, "http_proxy", mesh="proxyHttpPort: 15007")
    assert found["web.shop.svc.cluster.local:80"]["routes"][0]["route"]["cluster"] == "outbound|9000||one.com"

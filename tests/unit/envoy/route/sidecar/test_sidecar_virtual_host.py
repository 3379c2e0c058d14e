"""Virtual hosts of sidecars: ports of VirtualService hosts and hash policies of default routes."""

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
    """Return the virtual hosts of one route configuration of the client, by name."""
    world = World(mesh)
    world.apply(SERVICES + objects)
    configurations = world.resources(world.connect(CLIENT))[ROUTE]
    assert not world.failures
    plain = json_format.MessageToDict(any_pb2.Any.FromString(configurations[name].any))
    return {v["name"]: v for v in plain["virtualHosts"]}


def hash_headers(route: dict[str, Any]) -> list[Any]:
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


def test_wildcard_rule_decides_the_hash_policy() -> None:
    virtual_service = istio(
        "VirtualService", "web", "hosts: [web], http: [{route: [{destination: {host: api, port: {number: 80}}}]}]"
    )
    spec = "host: '*.shop.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: by-any}}}"
    (route,) = virtual_hosts(virtual_service + istio("DestinationRule", "any", spec), "80")[
        "web.shop.svc.cluster.local:80"
    ]["routes"]
    assert hash_headers(route) == ["by-any"]


def test_default_route_ignores_the_hash_policy_of_other_destinations() -> None:
    hosts = virtual_hosts(CONDITIONAL + rule("api"), "80")
    (route,) = hosts["web.shop.svc.cluster.local:80"]["routes"]
    assert route["name"] == "default"
    assert hash_headers(route) == []
    assert hash_headers(hosts["api.shop.svc.cluster.local:80"]["routes"][0]) == ["by-api"]


def test_default_route_uses_the_hash_policy_of_its_service() -> None:
    hosts = virtual_hosts(CONDITIONAL + rule("api") + rule("web"), "8080")
    (route,) = hosts["web.shop.svc.cluster.local:8080"]["routes"]
    assert hash_headers(route) == ["by-web"]


WILD = istio(
    "ServiceEntry",
    "wild",
    "hosts: ['*.wild.com'], ports: [{number: 8080, name: http, protocol: HTTP}], resolution: NONE",
)
REDIRECT = "http: [{redirect: {uri: /r}}]"


def test_unknown_hosts_are_served_on_ports_of_known_hosts() -> None:
    objects = WILD + istio("VirtualService", "one", f"hosts: ['*.wild.com', ghost.com], {REDIRECT}")
    assert "ghost.com:8080" in virtual_hosts(objects, "8080")


def test_wildcard_host_belongs_to_the_oldest_virtual_service() -> None:
    older = istio("VirtualService", "older", f"hosts: ['*.wild.com'], {REDIRECT}", age=1)
    objects = WILD + older + istio("VirtualService", "one", f"hosts: ['*.wild.com', ghost.com], {REDIRECT}")
    assert "ghost.com:8080" not in virtual_hosts(objects, "8080")
    assert "ghost.com:80" in virtual_hosts(objects, "80")


def test_http_proxy_route_without_port_uses_the_only_service_port() -> None:
    objects = istio(
        "ServiceEntry", "one", "hosts: [one.com], ports: [{number: 9000, name: http, protocol: HTTP}], resolution: DNS"
    )
    objects += istio("VirtualService", "web", "hosts: [web], http: [{route: [{destination: {host: one.com}}]}]")
    hosts = virtual_hosts(objects, "http_proxy", mesh="proxyHttpPort: 15007")
    assert hosts["web.shop.svc.cluster.local:80"]["routes"][0]["route"]["cluster"] == "outbound|9000||one.com"

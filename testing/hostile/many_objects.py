"""A family of hostile inputs: thousands of small objects, which name or select the same or different things.

Each is harmless. Together, they are expensive if each is compared with each, or if lists of them are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from testing.hostile.objects import Plain, make_object, network, security
from testing.hostile.search import Choices

MAX_PARTS = 100_000
"""Maximum number of hosts, ports or endpoints of all objects. The largest input has room for fewer."""


class Shape(NamedTuple):
    """The properties of each object. `host` and `labels` have a format for the number of the object if they differ."""

    hosts: int
    ports: int
    host: str
    labels: dict[str, str]
    gateway: str

    def names(self, number: int) -> list[str]:
        """Return the hosts of an object."""
        return [f"h{n}.{self.host.format(number)}" for n in range(self.hosts)]

    def selector(self, number: int) -> dict[str, str]:
        """Return the labels of an object."""
        return {key: value.format(number) for key, value in self.labels.items()}

    def service_ports(self) -> list[Plain]:
        return [{"name": f"http-{n}", "port": 80 + n} for n in range(self.ports)]

    def entry_ports(self) -> list[Plain]:
        return [{"name": f"http-{n}", "number": 80 + n, "protocol": "HTTP"} for n in range(self.ports)]


ROUTE = [{"route": [{"destination": {"host": "s0"}}]}]


def _service(shape: Shape, number: int) -> Plain:
    address = f"10.98.{number >> 8 & 255}.{number & 255}"
    spec = {"clusterIP": address, "ports": shape.service_ports(), "selector": shape.selector(number)}
    return make_object("v1", "Service", spec, f"s{number}")


def _endpoint_slice(shape: Shape, number: int) -> Plain:
    endpoints = [{"addresses": [f"10.{number & 255}.{n >> 8 & 255}.{n & 255}"]} for n in range(10 * shape.hosts)]
    ports = [{"name": port["name"], "port": 80} for port in shape.service_ports()]
    plain = make_object(
        "discovery.k8s.io/v1", "EndpointSlice", None, endpoints=endpoints, ports=ports, addressType="IPv4"
    )
    plain["metadata"]["labels"] = {"kubernetes.io/service-name": "s0"}
    return plain


def _workload(shape: Shape, number: int) -> Plain:
    return network("WorkloadEntry", {"address": f"10.7.{number >> 8}.{number & 255}", "labels": shape.selector(number)})


def _selecting_entry(shape: Shape, number: int) -> Plain:
    spec = {"hosts": shape.names(number), "ports": shape.entry_ports(), "resolution": "STATIC"}
    return network("ServiceEntry", {**spec, "workloadSelector": {"labels": shape.selector(number)}})


def _http_route(shape: Shape, number: int) -> Plain:
    parent = {"group": "", "kind": "Service", "name": f"s{number % shape.hosts}"}
    rules = [{"matches": [{"path": {"value": f"/{number}/{n}"}}]} for n in range(shape.ports)]
    return make_object("gateway.networking.k8s.io/v1", "HTTPRoute", {"parentRefs": [parent], "rules": rules})


def _virtual_service(shape: Shape, number: int) -> Plain:
    return network("VirtualService", {"hosts": shape.names(number), "gateways": [shape.gateway], "http": ROUTE})


def _gateway(shape: Shape, number: int) -> Plain:
    servers = [
        {"port": {"number": port["number"], "name": port["name"], "protocol": "HTTP"}, "hosts": shape.names(number)}
        for port in shape.entry_ports()
    ]
    return network("Gateway", {"selector": {"istio": "ingress"}, "servers": servers})


def _selecting(kind: Callable[[str, Any], Plain], name: str, **spec: Any) -> Callable[[Shape, int], Plain]:
    """Return a builder of objects with a selector."""
    return lambda shape, number: kind(name, {"selector": {"matchLabels": shape.selector(number)}, **spec})


BUILDERS: dict[str, Callable[[Shape, int], Plain]] = {
    "VirtualService": _virtual_service,
    "Gateway": _gateway,
    "DestinationRule": lambda shape, number: network(
        "DestinationRule",
        {"host": shape.names(number)[0], "subsets": [{"name": "a", "labels": shape.selector(number)}]},
    ),
    "Sidecar": lambda shape, number: network(
        "Sidecar",
        {
            "workloadSelector": {"labels": shape.selector(number)},
            "egress": [{"hosts": [f"*/{n}" for n in shape.names(0)]}],
        },
    ),
    "Service": _service,
    "EndpointSlice": _endpoint_slice,
    "WorkloadEntry": _workload,
    "ServiceEntry": _selecting_entry,
    "HTTPRoute": _http_route,
    "PeerAuthentication": _selecting(security, "PeerAuthentication", mtls={"mode": "STRICT"}),
    "RequestAuthentication": _selecting(security, "RequestAuthentication", jwtRules=[{"issuer": "a"}]),
    "AuthorizationPolicy": _selecting(security, "AuthorizationPolicy", rules=[{}]),
    "Telemetry": lambda shape, number: make_object(
        "telemetry.istio.io/v1", "Telemetry", {"selector": {"matchLabels": shape.selector(number)}}
    ),
}
"""Builders of one object of each kind by its number."""


def many_objects(c: Choices) -> Plain:
    """Return a list of objects of one or two kinds."""
    kinds = [c.pick(f"kind {n}", tuple(BUILDERS)) for n in range(2)]
    shape = Shape(
        max(1, c.count("hosts", 100)),
        max(1, c.count("ports", 100)),
        c.pick("host", ("{}.example.com", "example.com", "s{}.hostile.svc.cluster.local")),
        c.pick("labels", ({"app": "a"}, {"app": "a{}"}, {"app": "a", "version": "v{}"})),
        c.pick("gateway", ("mesh", "worst-1")),
    )
    items = [_service(shape._replace(ports=1), 0)]
    most = MAX_PARTS // (shape.hosts * shape.ports) + 1
    share = c.pick("share", (1, 2, 10, 100))
    for number in range(1, min(c.count("objects", 10_000), most) + 1):
        plain = BUILDERS[kinds[0 if number % share else 1]](shape, number)
        plain["metadata"] = {
            **plain["metadata"],
            "name": f"s{number}" if plain["kind"] == "Service" else f"worst-{number}",
        }
        items.append(plain)
    return {"apiVersion": "v1", "kind": "List", "items": items}

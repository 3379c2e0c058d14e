"""Routing of connections through a sidecar."""

from __future__ import annotations

from typing import Any

import pytest

from testing.mesh.listeners import WEB, WEB_POD, entry, service
from testing.mesh.objects import at, endpoint_slice, make, world
from tests.simulate.capture import Connection, Sidecar

WEB_HOST, DB, PEER = "web.a.svc.cluster.local", "db.a.svc.cluster.local", "peer.a.svc.cluster.local"
SHOP = (
    WEB_POD,
    service("web", "[{name: http, port: 80, targetPort: 8080}, {name: tcp-a, port: 9000}, {name: any, port: 7000}]"),
    service("db", "[{name: mysql, port: 3306}, {name: http, port: 80}, {name: tls, port: 443}]", "10.96.0.2"),
    service("peer", "[{name: tcp-p, port: 7100}]", "None"),
    endpoint_slice("peer", at("10.1.0.5"), ports="[{name: tcp-p, port: 7100}]"),
    entry(
        "hosts: [x.com, '*.x.com'], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]", "named", day=2
    ),
    entry(
        "hosts: [net.com], addresses: [10.200.0.0/16], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}]",
        "net",
        day=3,
    ),
    entry("hosts: [plain.com], resolution: DNS, ports: [{number: 80, name: tcp, protocol: TCP}]", "plain", day=4),
)


def sidecar(*objects: Any, mesh: str = "") -> Sidecar:
    env = world(*SHOP, *objects, mesh_config=mesh)
    resources = env.resources(env.connect(WEB))
    assert not env.failures
    return Sidecar(resources)


@pytest.mark.parametrize(
    ("connection", "destination"),
    [
        (Connection("10.96.0.1", 80, "http"), "http 80"),
        (Connection("1.2.3.4", 80, "http"), "http 80"),  # by its Host header
        (Connection("1.2.3.4", 80), "outbound|80||plain.com"),  # the only TCP service on this port for all addresses
        (Connection("10.96.0.1", 9000), f"outbound|9000||{WEB_HOST}"),
        (Connection("10.96.0.1", 7000, "http"), f"http {WEB_HOST}:7000"),
        (Connection("10.96.0.1", 7000), f"outbound|7000||{WEB_HOST}"),
        (Connection("10.96.0.1", 7000, "tls"), f"outbound|7000||{WEB_HOST}"),
        (Connection("10.96.0.2", 3306), f"outbound|3306||{DB}"),
        (Connection("10.96.0.2", 443, "tls", "x.com"), f"outbound|443||{DB}"),
        (Connection("10.1.0.5", 7100), f"outbound|7100||{PEER}"),
        (Connection("10.1.0.6", 7100), "PassthroughCluster"),
        (Connection("1.2.3.4", 443, "tls", "x.com"), "outbound|443||x.com"),
        (Connection("1.2.3.4", 443, "tls", "y.x.com"), "outbound|443||*.x.com"),
        (Connection("1.2.3.4", 443, "tls", "z.com"), "PassthroughCluster"),
        (Connection("10.200.0.9", 443, "tls", "net.com"), "outbound|443||net.com"),
        (Connection("1.2.3.4", 5555), "PassthroughCluster"),
        (Connection("1.2.3.4", 15001), "BlackHoleCluster"),
    ],
)
def test_outbound(connection: Connection, destination: str) -> None:
    assert sidecar().send(connection) == destination


def test_unknown_destinations_with_registry_only() -> None:
    strict = sidecar(mesh="outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
    assert strict.send(Connection("1.2.3.4", 5555)) == "BlackHoleCluster"
    assert strict.send(Connection("1.2.3.4", 443, "tls", "z.com")) == "BlackHoleCluster"


MESH_HTTP, MESH_TCP = ("istio-http/1.1", "istio"), ("istio-peer-exchange", "istio")


@pytest.mark.parametrize(
    ("mode", "connection", "destination"),
    [
        ("PERMISSIVE", Connection("10.1.0.1", 8080, "http"), "http inbound|8080||"),
        ("PERMISSIVE", Connection("10.1.0.1", 8080, "tls", alpn=MESH_HTTP), "tls http inbound|8080||"),
        ("PERMISSIVE", Connection("10.1.0.1", 9000), "inbound|9000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 9000, "tls", alpn=MESH_TCP), "tls inbound|9000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 9000, "tls", "own.com"), "inbound|9000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 7000, "http"), "http inbound|7000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 7000), "inbound|7000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 7000, "tls", alpn=MESH_HTTP), "tls http inbound|7000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 7000, "tls", alpn=("istio",)), "tls inbound|7000||"),
        ("PERMISSIVE", Connection("10.1.0.1", 5555, "http"), "http InboundPassthroughCluster"),
        ("PERMISSIVE", Connection("10.1.0.1", 5555, "tls", "own.com", ("h2",)), "InboundPassthroughCluster"),
        ("STRICT", Connection("10.1.0.1", 8080, "http"), "closed"),
        ("STRICT", Connection("10.1.0.1", 8080, "tls", alpn=MESH_HTTP), "tls http inbound|8080||"),
        ("STRICT", Connection("10.1.0.1", 9000), "closed"),
        ("STRICT", Connection("10.1.0.1", 5555), "closed"),
        ("DISABLE", Connection("10.1.0.1", 8080, "http"), "http inbound|8080||"),
        ("DISABLE", Connection("10.1.0.1", 9000, "tls"), "inbound|9000||"),
        ("DISABLE", Connection("10.1.0.1", 5555), "InboundPassthroughCluster"),
        ("PERMISSIVE", Connection("10.1.0.1", 15006), "BlackHoleCluster"),
    ],
)
def test_inbound(mode: str, connection: Connection, destination: str) -> None:
    policy = make("PeerAuthentication", "p", f"{{mtls: {{mode: {mode}}}}}")
    assert sidecar(policy).receive(connection) == destination

"""Random edits of all inputs of listeners: the result equals that of a fresh start."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.lib.xds_types import LISTENER
from testing.mesh.objects import at, endpoint_slice, make, pod
from testing.mesh.world import Rows, World, proxy, rows_of

PROXIES = [
    proxy("sidecar", "web-0", "a", "10.1.0.1", {"app": "web", "version": "v1"}),
    proxy("sidecar", "api-0", "b", "10.1.0.2", {"app": "api"}, INTERCEPTION_MODE="TPROXY"),
    proxy(
        "sidecar",
        "api-1",
        "b",
        "10.1.0.3",
        {"app": "api"},
        INTERCEPTION_MODE="NONE",
        HTTP_PROXY_PORT="15002",
        IDLE_TIMEOUT="5s",
    ),
    proxy(
        "sidecar", "six-0", "a", "fd00::1", {"app": "web", "service.istio.io/canonical-name": "six"}, DNS_CAPTURE="true"
    ),
]
FIXED = [
    pod("web-0", "10.1.0.1", "a", labels="{app: web, version: v1}"),
    pod("api-0", "10.1.0.2", "b", labels="{app: api}"),
    pod("api-1", "10.1.0.3", "b", labels="{app: api}"),
    endpoint_slice("x", at("10.1.0.1", "web-0"), at("10.1.0.9"), ports="[{name: p, port: 90}]"),
]
PORTS = (
    "[{name: http, port: 80}]",
    "[{name: tcp-p, port: 80}, {name: p, port: 90}]",
    "[{name: tls-p, port: 443}, {name: grpc-web, port: 80}]",
    "[{name: mongo, port: 90}, {name: dns, port: 53, protocol: UDP}]",
    "[{name: p, port: 90}]",
    "[{name: tcp-p, port: 90}]",
)
ENTRIES = (
    "hosts: [x.example.com], resolution: NONE, addresses: [10.9.0.0/16], ports: [{number: 443, name: tls, protocol: TLS}]",
    "hosts: [y.example.com], resolution: STATIC, addresses: [10.9.1.1, 10.9.1.2], ports: [{number: 90, name: tcp, protocol: TCP}]",
    "hosts: ['*.example.com'], resolution: NONE, ports: [{number: 443, name: tls, protocol: TLS}, {number: 80, name: http, protocol: HTTP}]",
    "hosts: [z.example.com], resolution: DNS, ports: [{number: 90, name: tcp, protocol: TCP}, {number: 80, name: tcp2, protocol: TCP}]",
)
RULES = (
    "hosts: [x], tcp: [{match: [{port: 90}], route: [{destination: {host: y.b.svc.cluster.local}}]}]",
    "hosts: [x], tcp: [{match: [{sourceLabels: {app: web}}], "
    "route: [{destination: {host: x, subset: v1}, weight: 10}, {destination: {host: x}, weight: 90}]}]",
    "hosts: [y.example.com], tcp: [{match: [{destinationSubnets: [10.9.1.0/24]}], route: [{destination: {host: z.example.com}}]}]",
    "hosts: ['*.example.com'], tls: [{match: [{sniHosts: [q.example.com]}], route: [{destination: {host: x.example.com, port: {number: 443}}}]}]",
    "hosts: [x], http: [{route: [{destination: {host: y.b.svc.cluster.local}}]}]",
)
POLICIES = (
    "{connectionPool: {tcp: {idleTimeout: 3s, maxConnectionDuration: 7s}}}",
    "{loadBalancer: {consistentHash: {useSourceIp: true}}}",
    "{tunnel: {protocol: POST, targetHost: t.example.com, targetPort: 443}}",
)
EGRESS = (
    "[{hosts: ['./*']}]",
    "[{hosts: ['*/*', '~b/*']}]",
    "[{port: {number: 90, protocol: TCP, name: t}, bind: 127.0.0.1, captureMode: NONE, hosts: ['*/*']}, {hosts: ['./*']}]",
    "[{port: {number: 80, protocol: HTTP, name: h}, hosts: ['b/*']}, {hosts: ['*/*']}]",
    "[{port: {number: 0, protocol: HTTP, name: u}, bind: 'unix:///tmp/x', hosts: ['*/*']}]",
    "[{port: {number: 3128, protocol: HTTP_PROXY, name: p}, bind: 127.0.0.1, hosts: ['*/*']}, {hosts: ['b/y.b.svc.cluster.local']}]",
)
INGRESS = (
    "[{port: {number: 7000, protocol: HTTP, name: h}, defaultEndpoint: '127.0.0.1:7001'}]",
    "[{port: {number: 90, protocol: TCP, name: t}, captureMode: NONE, bind: 0.0.0.0, defaultEndpoint: '127.0.0.1:9000'}]",
)
STEPS = 30


def service(rng: random.Random, name: str, namespace: str, app: str, ip: str) -> Any:
    address = rng.choice([ip, ip, "None"])
    spec = f"{{clusterIP: {address}, clusterIPs: [{address}], selector: {{app: {app}}}, ports: {rng.choice(PORTS)}}}"
    hidden = rng.choice(["{}", "{}", "{networking.istio.io/exportTo: '.'}"])
    return make("Service", name, spec, namespace, rng.randint(1, 3), annotations=hidden)


def sidecar(rng: random.Random, namespace: str) -> Any:
    parts = [f"egress: {rng.choice(EGRESS)}"]
    if rng.random() < 0.3:
        parts.append(f"ingress: {rng.choice(INGRESS)}")
    if rng.random() < 0.3:
        parts.append("outboundTrafficPolicy: {mode: REGISTRY_ONLY}")
    if namespace != "istio-system" and rng.random() < 0.4:
        parts.append("workloadSelector: {labels: {app: web}}")
    return make("Sidecar", "s", f"{{{', '.join(parts)}}}", namespace)


def policy(rng: random.Random, namespace: str) -> Any:
    selector = rng.choice(["", "selector: {matchLabels: {app: api}}, portLevelMtls: {90: {mode: DISABLE}}, "])
    return make(
        "PeerAuthentication",
        "p",
        f"{{{selector}mtls: {{mode: {rng.choice(['STRICT', 'PERMISSIVE', 'DISABLE'])}}}}}",
        namespace,
    )


SLOTS: list[Any] = [
    lambda c: service(c, "x", "a", "web", "10.96.0.1"),
    lambda c: service(c, "y", "b", "api", "10.96.0.2"),
    lambda c: service(c, "z", "b", "api", "10.96.0.3"),
    *(lambda c, n=n: make("ServiceEntry", f"e{n}", f"{{{c.choice(ENTRIES)}}}", "b", c.randint(1, 3)) for n in range(3)),
    *(lambda c, n=n: make("VirtualService", f"v{n}", f"{{{c.choice(RULES)}}}", "a", c.randint(1, 3)) for n in range(2)),
    lambda c: make(
        "DestinationRule",
        "d",
        f"{{host: {c.choice(['x', 'z.example.com'])}, trafficPolicy: {c.choice(POLICIES)}}}",
        "a",
    ),
    *(lambda c, n=n: sidecar(c, n) for n in ("a", "b", "istio-system")),
    *(lambda c, n=n: policy(c, n) for n in ("a", "b", "istio-system")),
]


def draw_slot(rng: random.Random, index: int, empty: float) -> Rows:
    return {} if rng.random() < empty else rows_of([SLOTS[index](rng)])


def snapshot(world: World, ids: list[str]) -> dict[str, dict[str, bytes]]:
    return {node: {name: r.any for name, r in world.resources(node).get(LISTENER, {}).items()} for node in ids}


def start(rows: list[Rows]) -> tuple[World, list[str]]:
    world = World()
    world.set(rows_of(FIXED))
    ids = [world.connect(p) for p in PROXIES]
    world.set({key: row for slot_rows in rows for key, row in slot_rows.items()})
    return world, ids


@pytest.mark.parametrize("part", range(6))
def test_listeners_equal_those_of_a_fresh_start(seed: int, part: int) -> None:
    rng = random.Random(f"listeners {seed} {part}")
    current = [draw_slot(rng, index, 0.5) for index in range(len(SLOTS))]
    world, ids = start(current)
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in rng.sample(range(len(SLOTS)), rng.randint(1, 3)):
            replacement = draw_slot(rng, index, 0.3)
            edits |= dict.fromkeys(current[index]) | dict(replacement)
            current[index] = replacement
        world.set(edits)
        actual, expected = snapshot(world, ids), snapshot(*start(current))
        differences = [
            f"{n} {name}"
            for n in ids
            for name in actual[n].keys() | expected[n].keys()
            if actual[n].get(name) != expected[n].get(name)
        ]
        assert not differences, f"part {part} step {step} after {list(edits)}: {differences}"
        assert not world.failures
        world.mesh.collect()

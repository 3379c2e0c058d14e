"""Random edits of gateways, and the cost of an edit of a VirtualService."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from pilot.derive import Node
from pilot.lib.xds_types import LISTENER, ROUTE
from pilot.mesh.model.proxy import Proxy
from testing.edits.mesh_edits import difference, snapshot
from testing.mesh.world import Rows, World, parse_objects, proxy, rows_of

ROUTERS = [
    proxy("router", "edge-0", "edge", "10.1.0.8", {"istio": "ingress"}),
    proxy("router", "edge-1", "edge", "10.1.0.9", {"istio": "ingress"}, UNPRIVILEGED_POD="true"),
    proxy("router", "own-0", "shop", "10.1.0.7", {"istio": "egress", "app": "own"}),
]
FLAGS = {"PILOT_ENABLE_QUIC_LISTENERS": "true", "PILOT_FILTER_GATEWAY_CLUSTER_CONFIG": "true"}
STEPS = 10

OBJECT = """
apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: {ns}, creationTimestamp: "2025-01-01T00:00:0{age}Z"}}
spec: {spec}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {ns}, labels: {{{labels}}}}}
spec: {{clusterIP: {ip}, selector: {{{selector}}}, ports: [{ports}]}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, namespace: {ns}, labels: {{{labels}}}}}
spec: {{containers: [{{name: proxy, image: proxy}}]}}
status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: "True"}}]}}
"""
PORTS = "{name: http, port: 80, targetPort: 8080}, {name: https, port: 443, targetPort: 8443}"
UDP = "{name: h3, port: 443, targetPort: 8443, protocol: UDP}"


def istio_objects(kind: str, ns: str, name: str, age: int, *specs: str) -> list[str]:
    return [OBJECT.format(kind=kind, ns=ns, name=name, age=age, spec=spec) for spec in specs]


def server(number: int, protocol: str, hosts: str, tls: str = "", name: str = "", bind: str = "") -> str:
    tls, bind = f", tls: {{{tls}}}" if tls else "", f", bind: {bind}" if bind else ""
    return f'{{port: {{number: {number}, name: "{name or protocol.lower()}-{number}", protocol: {protocol}}}, hosts: [{hosts}]{tls}{bind}}}'


def gateway(*servers: str, selector: str = "istio: ingress") -> str:
    return f"{{selector: {{{selector}}}, servers: [{', '.join(servers)}]}}"


TO = "route: [{{destination: {{host: {0}}}}}]"
SLOTS: list[list[str]] = [
    [
        SERVICE.format(name="shop", ns="shop", labels="", ip="10.96.0.1", selector="app: shop", ports=p)
        for p in ("{name: http, port: 80}", "{name: tcp, port: 80}, {name: udp, port: 81, protocol: UDP}")
    ],
    [
        SERVICE.format(
            name="blog", ns="blog", labels="", ip="10.96.0.2", selector="app: blog", ports="{name: http, port: 80}"
        )
    ],
    [
        SERVICE.format(name="edge", ns="edge", labels=labels, ip="10.96.0.3", selector="istio: ingress", ports=ports)
        for labels, ports in (
            ("", PORTS),
            ("", f"{PORTS}, {UDP}"),
            ('experimental.istio.io/disable-gateway-port-translation: ""', PORTS),
        )
    ],
    [
        POD.format(name="edge-0", ns="edge", labels=labels, ip="10.1.0.8")
        for labels in ("istio: ingress", "istio: ingress, track: canary", "istio: none")
    ],
    istio_objects(
        "DestinationRule",
        "shop",
        "shop",
        1,
        "{host: shop, subsets: [{name: v1}, {name: v2}]}",
        "{host: shop, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}}",
    ),
    istio_objects(
        "Gateway",
        "edge",
        "one",
        1,
        gateway(server(80, "HTTP", '"*"')),
        gateway(
            server(80, "HTTP", "shop.example.com", "httpsRedirect: true"),
            server(443, "HTTPS", '"*.example.com"', "mode: SIMPLE, credentialName: a"),
        ),
        gateway(server(80, "TCP", '"*"')),
        gateway(server(80, "HTTP", '"*"'), selector="istio: egress"),
    ),
    istio_objects(
        "Gateway",
        "edge",
        "two",
        2,
        gateway(
            server(443, "HTTPS", '"./shop.example.com"', "mode: MUTUAL, credentialName: b"),
            server(80, "HTTP2", "shop/*"),
        ),
        gateway(server(443, "TLS", "raw.example.com", "mode: PASSTHROUGH"), server(8080, "HTTP", '"*"')),
        gateway(server(80, "HTTP", "shop.example.com", bind="10.1.0.8")),
    ),
    istio_objects(
        "Gateway",
        "shop",
        "three",
        3,
        gateway(server(15443, "TLS", '"*.local"', "mode: AUTO_PASSTHROUGH")),
        gateway(server(443, "TLS", "raw.example.com", "mode: ISTIO_MUTUAL"), selector="app: own"),
        "{servers: [" + server(9000, "TCP", '"*"') + "]}",
    ),
    istio_objects(
        "VirtualService",
        "shop",
        "shop",
        1,
        "{hosts: [shop.example.com], gateways: [edge/one, edge/two], http: [{" + TO.format("shop") + "}]}",
        "{hosts: [shop.example.com, other.example.com], gateways: [edge/one], http: [{match: [{port: 80}], "
        + TO.format("shop, subset: v1")
        + "}]}",
        "{hosts: [shop.example.com], gateways: [edge/one, edge/two], http: [{match: [{sourceLabels: {track: canary}}], "
        + TO.format("blog.blog.svc.cluster.local")
        + "}]}",
        '{hosts: [shop.example.com], gateways: [edge/one], exportTo: ["."], http: [{redirect: {uri: /x}}]}',
    ),
    istio_objects(
        "VirtualService",
        "blog",
        "blog",
        2,
        '{hosts: ["*.example.com"], gateways: [edge/one, edge/two], http: [{' + TO.format("blog") + "}]}",
        "{hosts: [shop.example.com], gateways: [edge/one], http: [{match: [{uri: {prefix: /blog}}], "
        + TO.format("blog")
        + "}]}",
    ),
    istio_objects(
        "VirtualService",
        "shop",
        "raw",
        3,
        "{hosts: [raw.example.com], gateways: [edge/two, three], tls: [{match: [{sniHosts: [raw.example.com]}], "
        + TO.format("shop")
        + "}]}",
        '{hosts: ["*"], gateways: [edge/one, three], tcp: [{' + TO.format("shop") + "}]}",
    ),
]


def decoded_slots() -> list[list[Rows]]:
    return [[rows_of(parse_objects(text)) for text in variants] for variants in SLOTS]


def connect(world: World, routers: list[Proxy]) -> list[str]:
    return [world.connect(p) for p in routers]


@pytest.mark.parametrize("part", range(8))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    rng, slots, flags = random.Random(f"{seed} {part}"), decoded_slots(), FLAGS if part % 2 else {}
    world = World(environ=flags)
    ids = connect(world, ROUTERS)
    current: list[Rows] = [rng.choice(variants) if rng.random() < 0.7 else {} for variants in slots]
    world.set({key: row for rows in current for key, row in rows.items()})
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in rng.sample(range(len(slots)), rng.randint(1, 3)):
            replacement: Rows = {} if rng.random() < 0.2 else rng.choice(slots[index])
            edits |= dict.fromkeys(current[index]) | dict(replacement)
            current[index] = replacement
        world.set(edits)
        scratch = World(environ=flags)
        scratch.set({key: row for rows in current for key, row in rows.items()})
        differences = difference(snapshot(world, ids), snapshot(scratch, connect(scratch, ROUTERS)))
        assert not differences, f"part {part} step {step} after {list(edits)}: {differences}"
        assert not world.failures
        world.mesh.collect()


def make_gateway(count: int) -> World:
    """Return a gateway with this many VirtualServices, each for a different host."""
    world = World()
    world.apply(
        OBJECT.format(
            kind="Gateway",
            ns="edge",
            name="one",
            age=1,
            spec=gateway(server(80, "HTTP", '"*"'), server(443, "HTTPS", '"*"', "mode: SIMPLE, credentialName: a")),
        )
    )
    world.set({key: row for n in range(count) for key, row in virtual_service(n, "1s").items()})
    return world


def virtual_service(n: int, timeout: str) -> Rows:
    spec = f"{{hosts: [h{n}.example.com], gateways: [edge/one], http: [{{timeout: {timeout}, {TO.format('shop.shop.svc.cluster.local')}}}]}}"
    return rows_of(parse_objects(OBJECT.format(kind="VirtualService", ns="shop", name=f"v{n}", age=2, spec=spec)))


def test_cost_of_a_virtual_service_edit_is_constant() -> None:
    runs: list[Counter[str]] = []
    for count in (10, 60):
        world = make_gateway(count)
        (node_id,) = connect(world, ROUTERS[:1])
        before = snapshot(world, [node_id])[node_id]
        counts: Counter[str] = Counter()

        def count_run(node: Node, counts: Counter[str] = counts) -> None:
            counts[node.fn.__name__] += 1

        world.mesh.on_run = count_run
        world.set(virtual_service(7, "2s"))
        after = snapshot(world, [node_id])[node_id]
        assert before[LISTENER] == after[LISTENER]
        assert before[ROUTE].keys() == after[ROUTE].keys()
        assert all(before[ROUTE][name] != after[ROUTE][name] for name in before[ROUTE])
        runs.append(counts)
    assert runs[0] == runs[1]
    assert runs[0]["_virtual_host"] == 2  # one for each port
    assert runs[0]["gateway_host_keys"] == 0
    assert runs[0].total() < 40

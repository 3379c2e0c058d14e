"""Random edits of a whole mesh: what every proxy gets after each is what a fresh control plane would send."""
from __future__ import annotations

import random
from typing import Any

import pytest

from tests.support.world import Rows, World, parse_objects, proxy, rows_of

PROXIES = [
    proxy("sidecar", "alpha-0", "a", "10.1.0.1", {"app": "alpha", "version": "v1"}),
    proxy("sidecar", "beta-0", "b", "10.1.0.2", {"app": "beta"}),
    proxy("sidecar", "other-0", "c", "10.1.0.9", {"app": "other"}),
    proxy("router", "ingress-0", "edge", "10.1.0.8", {"istio": "ingress"}),
    proxy("sidecar", "alpha-0", "a", "10.2.0.1", {"app": "alpha"}, CLUSTER_ID="west"),
]
STEPS = 12

SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {ns}, creationTimestamp: "2025-01-01T00:00:0{age}Z"{annotations}}}
spec: {{clusterIP: {ip}, clusterIPs: [{ip}], selector: {{app: {name}}}, ports: {ports}}}
"""
SLICE = """
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-0, namespace: {ns}, labels: {{kubernetes.io/service-name: {name}}}}}
addressType: IPv4
endpoints: {endpoints}
ports: [{{name: http, port: 8080}}, {{name: tcp, port: 9000}}]
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}-0, namespace: {ns}, labels: {labels}}}
spec: {{serviceAccountName: {name}, nodeName: node-1, containers: [{{name: app, image: app}}]}}
status: {{phase: Running, podIP: {ip}, podIPs: [{{ip: {ip}}}], conditions: [{{type: Ready, status: "True"}}]}}
"""
ISTIO = """
apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: {ns}, creationTimestamp: "2025-01-01T00:00:0{age}Z"}}
spec: {spec}
"""
BOTH = "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 9000}]"
READY = "{{addresses: [{ip}], conditions: {{ready: {ready}}}, nodeName: node-1, targetRef: {{kind: Pod, name: {pod}, namespace: {ns}}}}}"


def istio(kind: str, ns: str, name: str, *specs: str, age: int = 5) -> list[str]:
    return [ISTIO.format(kind=kind, ns=ns, name=name, spec=spec, age=age) for spec in specs]


def service(ns: str, name: str, ip: str, age: int) -> list[str]:
    hidden = ', annotations: {networking.istio.io/exportTo: "."}'
    ports = [BOTH, "[{name: http, port: 80, targetPort: 8080}]", "[{name: tcp, port: 80, targetPort: 9000}]", "[{port: 80, targetPort: 8080}]"]
    variants = [*((ip, p, "") for p in ports), (ip, BOTH, hidden), ("None", BOTH, "")]
    return [SERVICE.format(ns=ns, name=name, ip=ip, ports=p, age=age, annotations=a) for ip, p, a in variants]


def endpoints(ns: str, name: str, *ips: str) -> list[str]:
    ready = [READY.format(ip=ip, ready="true", pod=f"{name}-0", ns=ns) for ip in ips]
    gone = READY.format(ip=ips[0], ready="false", pod=f"{name}-0", ns=ns)
    return [SLICE.format(ns=ns, name=name, endpoints=f"[{', '.join(some)}]") for some in (ready, ready[:1], [], [gone])]


def pod(ns: str, name: str, ip: str) -> list[str]:
    mesh = f"{{app: {name}, version: v1, security.istio.io/tlsMode: istio}}"
    return [POD.format(ns=ns, name=name, ip=ip, labels=labels) for labels in (mesh, f"{{app: {name}, version: v2}}", "{app: nobody}")]


ROUTE = "route: [{{destination: {{host: {host}{subset}}}}}]"
# Every slot holds one of its variants, or nothing.
SLOTS: list[list[str]] = [
    service("a", "alpha", "10.96.0.1", 1),
    service("b", "beta", "10.96.0.2", 2),
    service("c", "gamma", "10.96.0.3", 3),
    endpoints("a", "alpha", "10.1.0.1", "10.1.0.3"),
    endpoints("b", "beta", "10.1.0.2", "10.1.0.4"),
    pod("a", "alpha", "10.1.0.1"),
    pod("b", "beta", "10.1.0.2"),
    ["apiVersion: v1\nkind: Node\nmetadata: {name: node-1, labels: {topology.kubernetes.io/region: r1}}", "apiVersion: v1\nkind: Node\nmetadata: {name: node-1}"],
    istio(
        "DestinationRule",
        "b",
        "beta",
        "{host: beta, subsets: [{name: v1, labels: {version: v1}}]}",
        "{host: beta, trafficPolicy: {loadBalancer: {simple: RANDOM}, tls: {mode: DISABLE}}}",
        "{host: beta, trafficPolicy: {outlierDetection: {consecutive5xxErrors: 3}, loadBalancer: {consistentHash: {useSourceIp: true}}}}",
    ),
    istio("DestinationRule", "a", "wide", '{host: "*.b.svc.cluster.local", trafficPolicy: {connectionPool: {tcp: {maxConnections: 7}}}}', age=6),
    istio(
        "VirtualService",
        "b",
        "beta",
        "{hosts: [beta], http: [{" + ROUTE.format(host="beta", subset=", subset: v1") + "}]}",
        "{hosts: [beta.b.svc.cluster.local], http: [{match: [{uri: {prefix: /x}}], " + ROUTE.format(host="beta", subset="") + "}]}",
        '{hosts: [beta], exportTo: ["."], http: [{redirect: {uri: /y}}]}',
        "{hosts: [beta], tcp: [{match: [{port: 9000}], " + ROUTE.format(host="beta", subset="") + "}]}",
    ),
    istio("VirtualService", "a", "wild", '{hosts: ["*.example.com"], http: [{' + ROUTE.format(host="alpha", subset="") + "}]}", age=7),
    istio("VirtualService", "a", "root", "{hosts: [root.example.com], http: [{match: [{uri: {prefix: /d}}], delegate: {name: leaf, namespace: b}}]}", age=7),
    istio("VirtualService", "b", "leaf", "{http: [{" + ROUTE.format(host="beta", subset="") + "}]}", "{http: [{directResponse: {status: 418}}]}", age=8),
    istio("ServiceEntry", "c", "ext", "{hosts: [ext.example.com], location: MESH_EXTERNAL, resolution: DNS, ports: [{number: 443, name: tls, protocol: TLS}]}"),
    istio(
        "ServiceEntry",
        "a",
        "vm",
        "{hosts: [vm.example.com], location: MESH_INTERNAL, resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], workloadSelector: {labels: {app: alpha}}}",
        '{hosts: [vm.example.com], exportTo: ["."], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}], endpoints: [{address: 10.9.9.9}]}',
    ),
    istio("WorkloadEntry", "a", "vm", "{address: 10.9.0.1, labels: {app: alpha}}", "{address: 10.9.0.2, labels: {app: alpha}, weight: 5}"),
    istio("Sidecar", "a", "default", '{egress: [{hosts: ["./*", "b/*"]}]}', '{egress: [{hosts: ["*/*"]}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}'),
    istio("Sidecar", "istio-system", "default", '{egress: [{hosts: ["./*"]}]}', age=9),
    istio(
        "Gateway",
        "edge",
        "gw",
        '{selector: {istio: ingress}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ["*"]}]}',
        "{selector: {istio: ingress}, servers: [{port: {number: 443, name: https, protocol: HTTPS}, hosts: [x.example.com], tls: {mode: SIMPLE, credentialName: c}}]}",
        "{selector: {istio: other}, servers: [{port: {number: 80, name: http, protocol: HTTP}, hosts: [x.example.com]}]}",
    ),
    istio(
        "VirtualService",
        "a",
        "in",
        "{hosts: [x.example.com], gateways: [edge/gw], http: [{" + ROUTE.format(host="alpha", subset="") + "}]}",
        "{hosts: [x.example.com], gateways: [edge/gw, mesh], http: [{timeout: 1s, " + ROUTE.format(host="beta.b.svc.cluster.local", subset="") + "}]}",
    ),
    [f"apiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {{name: default, namespace: {ns}}}\nspec: {{mtls: {{mode: STRICT}}}}" for ns in ("a", "b")],
]


# What runs in a second cluster: a service of a name that the first has too, and one of its own.
WEST_SLOTS: list[list[str]] = [
    service("a", "alpha", "10.97.0.1", 3),
    endpoints("a", "alpha", "10.2.0.1", "10.2.0.9"),
    pod("a", "alpha", "10.2.0.1"),
    service("b", "gamma", "10.97.0.3", 4)[:2],
]


def decoded() -> list[list[Rows]]:
    slots = [(variants, "Kubernetes") for variants in SLOTS] + [(variants, "west") for variants in WEST_SLOTS]
    return [[rows_of(parse_objects(text), cluster) for text in variants] for variants, cluster in slots]


def snapshot(world: World, ids: list[str]) -> dict[str, Any]:
    return {node: {url: {name: r.any for name, r in have.items()} for url, have in world.resources(node).items()} for node in ids}


def difference(got: dict[str, Any], want: dict[str, Any]) -> list[str]:
    rows = []
    for node, types in want.items():
        for url in types.keys() | got[node].keys():
            ours, fresh = got[node].get(url, {}), types.get(url, {})
            rows += [f"{node} {url.rpartition('.')[2]} {name}" for name in ours.keys() | fresh.keys() if ours.get(name) != fresh.get(name)]
    return rows


@pytest.mark.parametrize("part", range(6))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    choose, slots = random.Random(f"{seed} {part}"), decoded()
    world = World()
    ids = [world.connect(p) for p in PROXIES]
    now: list[Rows] = [choose.choice(variants) if choose.random() < 0.6 else {} for variants in slots]
    world.set({key: row for rows in now for key, row in rows.items()})
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in choose.sample(range(len(slots)), choose.randint(1, 3)):
            fresh: Rows = {} if choose.random() < 0.3 else choose.choice(slots[index])
            edits |= dict.fromkeys(now[index]) | dict(fresh)
            now[index] = fresh
        world.set(edits)
        scratch = World()
        scratch.set({key: row for rows in now for key, row in rows.items()})
        want = snapshot(scratch, [scratch.connect(p) for p in PROXIES])
        wrong = difference(snapshot(world, ids), want)
        assert not wrong, f"part {part} step {step} after {list(edits)}: {wrong}"
        assert not world.failures
        if choose.random() < 0.4:
            world.sweep(), scratch.sweep()
            surplus = world.graph().keys() - scratch.graph().keys()
            assert not surplus, f"part {part} step {step} after {list(edits)}: nobody needs {surplus}"


def test_what_no_proxy_can_notice_reaches_nothing() -> None:
    """An annotation, a status, a resource version: the rows are equal, so that nothing is even looked at."""
    world = World()
    ids = [world.connect(p) for p in PROXIES]
    everything = {key: row for variants in decoded() for key, row in variants[0].items()}
    world.set(everything)
    snapshot(world, ids)
    runs = world.mesh.runs
    for variants in SLOTS:
        (plain,) = parse_objects(variants[0])
        plain["metadata"].setdefault("annotations", {})["example.com/touched"] = "now"
        plain["metadata"]["resourceVersion"] = "12345"
        rows = {(getattr(world.mesh, table), key): row for (table, key), row in rows_of([plain]).items()}
        assert world.mesh.commit([(table, key, row) for (table, key), row in rows.items()]) == []
    assert world.mesh.runs == runs

"""Random edits of sidecar routes, and the cost of an edit."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from envoy.config.route.v3 import route_pb2
from google.protobuf import any_pb2

from pilot.derive import Node
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import LISTENER, ROUTE
from pilot.mesh.model.proxy import Proxy
from testing.edits.mesh_edits import difference, snapshot
from testing.mesh.world import Rows, World, parse_objects, proxy, rows_of

SIDECARS = [
    proxy("sidecar", "web-0", "one", "10.1.0.1", {"app": "web", "version": "v1"}),
    proxy("sidecar", "web-1", "one", "10.1.0.2", {"app": "web", "version": "v2"}, DNS_CAPTURE="true"),
    proxy("sidecar", "api-0", "two", "10.1.0.3", {"app": "api"}),
    proxy("sidecar", "job-0", "three", "10.1.0.4", {"app": "job"}, HTTP_PROXY_PORT="15080"),
]
STEPS = 10

ISTIO = """
apiVersion: networking.istio.io/v1
kind: {kind}
metadata: {{name: {name}, namespace: {ns}, creationTimestamp: "2025-01-01T00:00:0{age}Z"}}
spec: {spec}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: {name}, namespace: {ns}, creationTimestamp: "2025-01-01T00:00:0{age}Z", annotations: {{{annotations}}}, labels: {{{labels}}}}}
spec: {{{spec}}}
"""
WEB, API = "web.one.svc.cluster.local", "api.two.svc.cluster.local"


def istio_objects(kind: str, ns: str, name: str, age: int, *specs: str) -> list[str]:
    return [ISTIO.format(kind=kind, ns=ns, name=name, age=age, spec=spec) for spec in specs]


def service(ns: str, name: str, age: int, *specs: str, annotations: str = "", labels: str = "") -> list[str]:
    return [
        SERVICE.format(ns=ns, name=name, age=age, spec=spec, annotations=annotations, labels=labels) for spec in specs
    ]


def ports(*numbers: int, protocol: str = "http") -> str:
    return "ports: [" + ", ".join(f"{{name: {protocol}-{n}, port: {n}}}" for n in numbers) + "]"


def cluster_ip(last: int, rest: str) -> str:
    return f"clusterIP: 10.96.0.{last}, {rest}"


def alias(target: str) -> str:
    return f"type: ExternalName, externalName: {target}, {ports(80)}"


def to(*hosts: str, subset: str = "") -> str:
    extra = f", subset: {subset}" if subset else ""
    return (
        "route: ["
        + ", ".join(f"{{destination: {{host: {h}{extra}}}, weight: {100 // len(hosts)}}}" for h in hosts)
        + "]"
    )


# Each slot has one of its variants, or none.
SLOTS: list[list[str]] = [
    service("one", "web", 1, cluster_ip(1, ports(80)), cluster_ip(1, ports(80, 8080)), cluster_ip(9, ports(8080))),
    service(
        "two",
        "api",
        2,
        cluster_ip(2, ports(80)),
        f"clusterIP: None, {ports(80)}",
        cluster_ip(2, ports(80, protocol="tcp")),
    )
    + service("two", "api", 2, cluster_ip(2, ports(80)), annotations='networking.istio.io/exportTo: "."'),
    service(
        "three", "job", 3, cluster_ip(3, ports(80)), cluster_ip(1, ports(80)), labels="istio.io/persistent-session: c"
    ),
    service("three", "auto", 3, cluster_ip(4, "ports: [{port: 9000}]")),
    service("three", "alias", 4, *(alias(target) for target in (WEB, API, "alias.one.svc.cluster.local"))),
    service("one", "alias", 4, alias("alias.three.svc.cluster.local")),
    istio_objects(
        "ServiceEntry",
        "three",
        "entry",
        5,
        "{hosts: [ext.com, web.one], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        "{hosts: ['*.ext.com'], addresses: [10.96.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}",
        f"{{hosts: [{WEB}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: DNS, exportTo: ['.']}}",
    ),
    istio_objects(
        "VirtualService",
        "one",
        "web",
        6,
        f"{{hosts: [web], http: [{{{to('web')}}}]}}",
        f"{{hosts: [web, ghost.com], http: [{{timeout: 3s, {to('web', WEB)}}}]}}",
        f"{{hosts: [web], exportTo: ['.'], http: [{{match: [{{sourceLabels: {{version: v2}}}}], {to(API)}}}]}}",
        f"{{hosts: [web], http: [{{match: [{{port: 8080}}], {to(API)}}}]}}",
        f"{{hosts: [web], http: [{{match: [{{sourceNamespace: two}}, {{uri: {{prefix: /x}}}}], {to(API)}}}]}}",
    ),
    istio_objects(
        "VirtualService",
        "two",
        "api",
        7,
        f"{{hosts: [api, ghost.com], http: [{{{to('api', subset='v1')}}}]}}",
        f"{{hosts: [api], exportTo: [one], http: [{{{to('alias.three.svc.cluster.local', 'job.three.svc.cluster.local')}}}]}}",
        f"{{hosts: [{WEB}, api], http: [{{redirect: {{uri: /r}}}}]}}",
    ),
    istio_objects(
        "VirtualService",
        "two",
        "wild",
        8,
        f"{{hosts: ['*.one.svc.cluster.local'], http: [{{{to('api')}}}]}}",
        f"{{hosts: ['*.ext.com', other.com], http: [{{{to('api')}}}]}}",
        f"{{hosts: ['*.svc.cluster.local'], http: [{{match: [{{port: 80, uri: {{exact: /w}}}}], {to('api')}}}]}}",
    ),
    istio_objects("VirtualService", "three", "alias", 9, f"{{hosts: [alias], http: [{{{to('alias')}}}]}}"),
    istio_objects(
        "VirtualService",
        "one",
        "root",
        7,
        "{hosts: [root.com], http: [{match: [{uri: {prefix: /d}}], delegate: {name: leaf, namespace: two}}]}",
    ),
    istio_objects(
        "VirtualService",
        "two",
        "leaf",
        8,
        f"{{http: [{{{to('api')}}}]}}",
        "{http: [{directResponse: {status: 418}}]}",
        f"{{http: [{{match: [{{uri: {{prefix: /e}}}}], {to('api')}}}]}}",
        f"{{exportTo: ['.'], http: [{{{to('api')}}}]}}",
    ),
    istio_objects(
        "DestinationRule",
        "two",
        "api",
        5,
        "{host: api, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}",
        "{host: api, subsets: [{name: v1, labels: {v: '1'}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}}]}",
        "{host: '*.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: q}}}}",
        "{host: api, subsets: [{name: v1, labels: {v: '1'}}]}",
    ),
    istio_objects(
        "DestinationRule",
        "one",
        "api",
        5,
        f"{{host: {API}, trafficPolicy: {{loadBalancer: {{consistentHash: {{httpHeaderName: own}}}}}}}}",
    ),
    istio_objects(
        "Sidecar",
        "one",
        "default",
        1,
        "{egress: [{hosts: ['./*', 'two/*']}]}",
        "{egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['two/*']}, {hosts: ['*/*', '~three/*']}]}",
        "{egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
        "{egress: [{port: {number: 7777, name: proxy, protocol: HTTP_PROXY}, bind: 127.0.0.1, hosts: ['*/*']}, {hosts: ['./*']}]}",
    ),
    istio_objects("Sidecar", "istio-system", "default", 2, "{egress: [{hosts: ['./*', 'two/*']}]}"),
]


def connect(world: World, proxies: list[Proxy]) -> list[str]:
    return [world.connect(p) for p in proxies]


def find_errors(resources: dict[str, Resource]) -> list[str]:
    """Return the errors for which Envoy would reject the routes, such as duplicate domains or virtual hosts."""
    errors = []
    for name, resource in resources.items():
        routes = route_pb2.RouteConfiguration.FromString(any_pb2.Any.FromString(resource.any).value)
        domains = Counter(d.lower() for v in routes.virtual_hosts for d in v.domains)
        names = Counter(v.name for v in routes.virtual_hosts)
        errors += [f"{name}: {n} {c} times" for n, c in (*domains.items(), *names.items()) if c > 1]
        errors += [
            f"{name}: {v.name} has no domain or route" for v in routes.virtual_hosts if not v.domains or not v.routes
        ]
    return errors


@pytest.mark.parametrize("part", range(8))
def test_incremental_equals_scratch(seed: int, part: int) -> None:
    rng = random.Random(f"{seed} {part}")
    slots = [[rows_of(parse_objects(v)) for v in variants] for variants in SLOTS]
    flags = {"PILOT_ENABLE_PERSISTENT_SESSION_FILTER": str(rng.random() < 0.5).lower()}
    world = World(environ=flags)
    ids = connect(world, SIDECARS)
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
        actual = snapshot(world, ids)
        differences = difference(actual, snapshot(scratch, connect(scratch, SIDECARS)))
        assert not differences, f"part {part} step {step} after {list(edits)}: {differences}"
        assert not world.failures
        errors = [w for node_id in ids for w in find_errors(world.resources(node_id).get(ROUTE, {}))]
        assert not errors, f"part {part} step {step}: {errors}"
        world.mesh.collect()


# -- cost ------------------------------------------------------------------------------------------------------------------


def make_services(count: int) -> World:
    """Return a mesh of services with a VirtualService each."""
    world = World()
    rows: Rows = {}
    for n in range(count):
        spec = f"clusterIP: 10.97.{n // 250}.{n % 250 + 1}, {ports(80)}"
        rows |= rows_of(
            parse_objects(SERVICE.format(ns=f"n{n % 5}", name=f"s{n}", age=1, spec=spec, annotations="", labels=""))
        )
        rows |= virtual_service(n, "1s")
    world.set(rows)
    return world


def virtual_service(n: int, timeout: str, hosts: str = "") -> Rows:
    spec = f"{{hosts: [{hosts or f's{n}'}], http: [{{timeout: {timeout}, {to(f's{n}')}}}]}}"
    return rows_of(parse_objects(ISTIO.format(kind="VirtualService", ns=f"n{n % 5}", name=f"v{n}", age=2, spec=spec)))


def runs_of(world: World, ids: list[str], rows: Rows) -> Counter[str]:
    counts: Counter[str] = Counter()

    def count_run(node: Node) -> None:
        counts[node.fn.__name__] += 1

    world.mesh.on_run = count_run
    world.set(rows)
    snapshot(world, ids)
    world.mesh.on_run = None
    return counts


CLIENTS = [
    proxy("sidecar", f"c{n}", namespace, f"10.2.0.{n + 1}")
    for n, namespace in enumerate(("n0", "n1", "elsewhere", "far"))
]


def test_cost_of_a_virtual_service_edit_is_constant() -> None:
    runs: list[Counter[str]] = []
    for count in (20, 120):
        world = make_services(count)
        ids = connect(world, CLIENTS)
        before = snapshot(world, ids)
        runs.append(runs_of(world, ids, virtual_service(10, "2s")))
        after = snapshot(world, ids)
        for node_id in ids:
            assert before[node_id][LISTENER] == after[node_id][LISTENER]
            assert before[node_id][ROUTE]["80"] != after[node_id][ROUTE]["80"]
    assert runs[0] == runs[1]
    assert runs[0]["virtual_host"] == 2  # for its namespace, and for all others
    assert runs[0]["segment_bytes"] == 2
    assert runs[0]["route_layout"] == runs[0]["segment_hosts"] == 0
    assert runs[0].total() < 60


def test_virtual_hosts_are_shared_between_namespaces() -> None:
    world = make_services(40)
    ids = connect(world, CLIENTS)
    builds = Counter[str]()
    world.mesh.on_run = lambda node: builds.update([node.fn.__name__])
    snapshot(world, ids)
    assert (
        builds["virtual_host"] == 40 + 2 * 8
    )  # for other namespaces, and for the two clients in a namespace with services
    assert builds["route_layout"] == 1
    assert builds["sidecar_routes"] == len(CLIENTS)


def test_destination_rule_edit_does_not_change_routes() -> None:
    world = make_services(20)
    ids = connect(world, CLIENTS)
    before = snapshot(world, ids)
    spec = "{host: s3, subsets: [{name: v1, labels: {version: v1}}]}"
    runs_of(
        world, ids, rows_of(parse_objects(ISTIO.format(kind="DestinationRule", ns="n3", name="d", age=2, spec=spec)))
    )
    after = snapshot(world, ids)
    assert all(before[node_id][ROUTE] == after[node_id][ROUTE] for node_id in ids)

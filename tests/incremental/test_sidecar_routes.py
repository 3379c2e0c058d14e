"""Routes of sidecars under random edits, and how little an edit of one object runs."""

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


def istio(kind: str, ns: str, name: str, age: int, *specs: str) -> list[str]:
    return [ISTIO.format(kind=kind, ns=ns, name=name, age=age, spec=spec) for spec in specs]


def service(ns: str, name: str, age: int, *specs: str, annotations: str = "", labels: str = "") -> list[str]:
    return [
        SERVICE.format(ns=ns, name=name, age=age, spec=spec, annotations=annotations, labels=labels) for spec in specs
    ]


def ports(*numbers: int, protocol: str = "http") -> str:
    return "ports: [" + ", ".join(f"{{name: {protocol}-{n}, port: {n}}}" for n in numbers) + "]"


def at(last: int, rest: str) -> str:
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


# Every slot holds one of its variants, or nothing.
SLOTS: list[list[str]] = [
    service("one", "web", 1, at(1, ports(80)), at(1, ports(80, 8080)), at(9, ports(8080))),
    service("two", "api", 2, at(2, ports(80)), f"clusterIP: None, {ports(80)}", at(2, ports(80, protocol="tcp")))
    + service("two", "api", 2, at(2, ports(80)), annotations='networking.istio.io/exportTo: "."'),
    service("three", "job", 3, at(3, ports(80)), at(1, ports(80)), labels="istio.io/persistent-session: c"),
    service("three", "auto", 3, at(4, "ports: [{port: 9000}]")),
    service("three", "alias", 4, *(alias(target) for target in (WEB, API, "alias.one.svc.cluster.local"))),
    service("one", "alias", 4, alias("alias.three.svc.cluster.local")),
    istio(
        "ServiceEntry",
        "three",
        "entry",
        5,
        "{hosts: [ext.com, web.one], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}",
        "{hosts: ['*.ext.com'], addresses: [10.96.0.1], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}",
        f"{{hosts: [{WEB}], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: DNS, exportTo: ['.']}}",
    ),
    istio(
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
    istio(
        "VirtualService",
        "two",
        "api",
        7,
        f"{{hosts: [api, ghost.com], http: [{{{to('api', subset='v1')}}}]}}",
        f"{{hosts: [api], exportTo: [one], http: [{{{to('alias.three.svc.cluster.local', 'job.three.svc.cluster.local')}}}]}}",
        f"{{hosts: [{WEB}, api], http: [{{redirect: {{uri: /r}}}}]}}",
    ),
    istio(
        "VirtualService",
        "two",
        "wild",
        8,
        f"{{hosts: ['*.one.svc.cluster.local'], http: [{{{to('api')}}}]}}",
        f"{{hosts: ['*.ext.com', other.com], http: [{{{to('api')}}}]}}",
        f"{{hosts: ['*.svc.cluster.local'], http: [{{match: [{{port: 80, uri: {{exact: /w}}}}], {to('api')}}}]}}",
    ),
    istio("VirtualService", "three", "alias", 9, f"{{hosts: [alias], http: [{{{to('alias')}}}]}}"),
    istio(
        "VirtualService",
        "one",
        "root",
        7,
        "{hosts: [root.com], http: [{match: [{uri: {prefix: /d}}], delegate: {name: leaf, namespace: two}}]}",
    ),
    istio(
        "VirtualService",
        "two",
        "leaf",
        8,
        f"{{http: [{{{to('api')}}}]}}",
        "{http: [{directResponse: {status: 418}}]}",
        f"{{http: [{{match: [{{uri: {{prefix: /e}}}}], {to('api')}}}]}}",
        f"{{exportTo: ['.'], http: [{{{to('api')}}}]}}",
    ),
    istio(
        "DestinationRule",
        "two",
        "api",
        5,
        "{host: api, trafficPolicy: {loadBalancer: {consistentHash: {useSourceIp: true}}}}",
        "{host: api, subsets: [{name: v1, labels: {v: '1'}, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x}}}}]}",
        "{host: '*.svc.cluster.local', trafficPolicy: {loadBalancer: {consistentHash: {httpQueryParameterName: q}}}}",
        "{host: api, subsets: [{name: v1, labels: {v: '1'}}]}",
    ),
    istio(
        "DestinationRule",
        "one",
        "api",
        5,
        f"{{host: {API}, trafficPolicy: {{loadBalancer: {{consistentHash: {{httpHeaderName: own}}}}}}}}",
    ),
    istio(
        "Sidecar",
        "one",
        "default",
        1,
        "{egress: [{hosts: ['./*', 'two/*']}]}",
        "{egress: [{port: {number: 80, name: http, protocol: HTTP}, hosts: ['two/*']}, {hosts: ['*/*', '~three/*']}]}",
        "{egress: [{hosts: ['*/*']}], outboundTrafficPolicy: {mode: REGISTRY_ONLY}}",
        "{egress: [{port: {number: 7777, name: proxy, protocol: HTTP_PROXY}, bind: 127.0.0.1, hosts: ['*/*']}, {hosts: ['./*']}]}",
    ),
    istio("Sidecar", "istio-system", "default", 2, "{egress: [{hosts: ['./*', 'two/*']}]}"),
]


def connect(world: World, proxies: list[Proxy]) -> list[str]:
    return [world.connect(p) for p in proxies]


def well_formed(resources: dict[str, Resource]) -> list[str]:
    """What Envoy would refuse: domains or virtual hosts of the same name."""
    wrong = []
    for name, resource in resources.items():
        routes = route_pb2.RouteConfiguration.FromString(any_pb2.Any.FromString(resource.any).value)
        domains = Counter(d.lower() for v in routes.virtual_hosts for d in v.domains)
        names = Counter(v.name for v in routes.virtual_hosts)
        wrong += [f"{name}: {n} {c} times" for n, c in (*domains.items(), *names.items()) if c > 1]
        wrong += [
            f"{name}: {v.name} has no domain or route" for v in routes.virtual_hosts if not v.domains or not v.routes
        ]
    return wrong


@pytest.mark.parametrize("part", range(8))
def test_random_edits_give_what_scratch_gives(seed: int, part: int) -> None:
    choose = random.Random(f"{seed} {part}")
    slots = [[rows_of(parse_objects(v)) for v in variants] for variants in SLOTS]
    flags = {"PILOT_ENABLE_PERSISTENT_SESSION_FILTER": str(choose.random() < 0.5).lower()}
    world = World(environ=flags)
    ids = connect(world, SIDECARS)
    now: list[Rows] = [choose.choice(variants) if choose.random() < 0.7 else {} for variants in slots]
    world.set({key: row for rows in now for key, row in rows.items()})
    for step in range(STEPS):
        edits: dict[Any, Any] = {}
        for index in choose.sample(range(len(slots)), choose.randint(1, 3)):
            fresh: Rows = {} if choose.random() < 0.2 else choose.choice(slots[index])
            edits |= dict.fromkeys(now[index]) | dict(fresh)
            now[index] = fresh
        world.set(edits)
        scratch = World(environ=flags)
        scratch.set({key: row for rows in now for key, row in rows.items()})
        got = snapshot(world, ids)
        wrong = difference(got, snapshot(scratch, connect(scratch, SIDECARS)))
        assert not wrong, f"part {part} step {step} after {list(edits)}: {wrong}"
        assert not world.failures
        refused = [w for node_id in ids for w in well_formed(world.resources(node_id).get(ROUTE, {}))]
        assert not refused, f"part {part} step {step}: {refused}"
        world.mesh.collect()


# -- cost ------------------------------------------------------------------------------------------------------------------


def many(count: int) -> World:
    """Services, each with a VirtualService of its own."""
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
    counted: Counter[str] = Counter()

    def count_run(node: Node) -> None:
        counted[node.fn.__name__] += 1

    world.mesh.on_run = count_run
    world.set(rows)
    snapshot(world, ids)
    world.mesh.on_run = None
    return counted


CLIENTS = [
    proxy("sidecar", f"c{n}", namespace, f"10.2.0.{n + 1}")
    for n, namespace in enumerate(("n0", "n1", "elsewhere", "far"))
]


def test_an_edit_of_one_virtual_service_runs_the_same_whatever_else_there_is() -> None:
    ran: list[Counter[str]] = []
    for count in (20, 120):
        world = many(count)
        ids = connect(world, CLIENTS)
        before = snapshot(world, ids)
        ran.append(runs_of(world, ids, virtual_service(10, "2s")))
        after = snapshot(world, ids)
        for node_id in ids:
            assert before[node_id][LISTENER] == after[node_id][LISTENER]
            assert before[node_id][ROUTE]["80"] != after[node_id][ROUTE]["80"]
    assert ran[0] == ran[1]
    assert ran[0]["virtual_host"] == 2  # as its own namespace sees it, and as all others do
    assert ran[0]["segment_bytes"] == 2
    assert ran[0]["route_layout"] == ran[0]["segment_hosts"] == 0
    assert ran[0].total() < 60


def test_virtual_hosts_are_shared_between_namespaces() -> None:
    world = many(40)
    ids = connect(world, CLIENTS)
    built = Counter[str]()
    world.mesh.on_run = lambda node: built.update([node.fn.__name__])
    snapshot(world, ids)
    assert built["virtual_host"] == 40 + 2 * 8  # from afar, and for the two clients that are in a namespace of services
    assert built["route_layout"] == 1
    assert built["sidecar_routes"] == len(CLIENTS)


def test_an_edit_of_a_destination_rule_leaves_routes_alone() -> None:
    world = many(20)
    ids = connect(world, CLIENTS)
    before = snapshot(world, ids)
    spec = "{host: s3, subsets: [{name: v1, labels: {version: v1}}]}"
    runs_of(
        world, ids, rows_of(parse_objects(ISTIO.format(kind="DestinationRule", ns="n3", name="d", age=2, spec=spec)))
    )
    after = snapshot(world, ids)
    assert all(before[node_id][ROUTE] == after[node_id][ROUTE] for node_id in ids)

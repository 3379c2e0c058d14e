"""Random edits of services, endpoints and workloads: the result of a fresh mesh, and the cost of an edit."""

from __future__ import annotations

import random
from typing import Any

import pytest

from pilot.envoy.endpoint.load_assignments import outbound_load_assignments
from pilot.mesh.proxies.classify import outbound_facet
from pilot.mesh.registry.endpoints import service_accounts
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service, service_refs, visible_refs
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import Rows, World, proxy, rows_of

PROXIES = [
    proxy("sidecar", "alpha-0", "a", "10.1.0.1", {"app": "alpha"}, NODE_NAME="n1", NETWORK="net1"),
    proxy("sidecar", "vm", "a", "10.9.0.1", {"app": "alpha"}),
    proxy("sidecar", "beta-0", "b", "10.1.0.2", {"app": "beta"}, NODE_NAME="n2"),
    proxy("router", "edge-0", "edge", "10.1.0.3"),
    proxy("sidecar", "alpha-0", "a", "10.2.0.1", {"app": "alpha"}, NODE_NAME="n1", NETWORK="net2", CLUSTER_ID="west"),
]
STEPS = 25


def service_variants(name: str, namespace: str, ip: str = "10.96.0.1") -> list[Plain]:
    ports = [
        "[{name: http, port: 80, targetPort: 8080}]",
        "[{name: http, port: 80, targetPort: web}, {name: tcp, port: 9000}]",
    ]
    specs = [f"{{clusterIP: {ip}, selector: {{app: {name}}}, ports: {p}}}" for p in ports]
    variants = [make("Service", name, spec, namespace, day=day) for day, spec in enumerate(specs, 1)]
    variants.append(make("Service", name, specs[0].replace(ip, "None"), namespace))
    variants.append(make("Service", name, specs[0], namespace, annotations="{networking.istio.io/exportTo: '.'}"))
    variants.append(
        make(
            "Service",
            name,
            specs[0].replace("{cl", "{internalTrafficPolicy: Local, trafficDistribution: PreferClose, cl"),
            namespace,
        )
    )
    variants.append(
        make(
            "Service",
            name,
            "{type: ExternalName, externalName: x.example.com, ports: [{name: http, port: 80}]}",
            namespace,
        )
    )
    return variants


def slice_variants(name: str, namespace: str, ip: str) -> list[Plain]:
    local_endpoint, remote_endpoint = (
        at(ip, f"{name}-0", namespace=namespace),
        at("10.7.0.1", conditions="{ready: false, terminating: false}"),
    )
    variants = [local_endpoint], [local_endpoint, remote_endpoint], [], [remote_endpoint]
    ports = "[{name: http, port: 8080}, {name: tcp, port: 9000}]", "[{name: http, port: 8080}]"
    return [endpoint_slice(name, *endpoints, namespace=namespace, ports=p) for endpoints in variants for p in ports]


def pod_variants(name: str, namespace: str, ip: str) -> list[Plain]:
    spec = "{{nodeName: {}, serviceAccountName: {}, containers: [{{name: c, image: i, ports: [{{name: web, containerPort: 8081}}]}}]}}"
    mesh = f"{{app: {name}, security.istio.io/tlsMode: istio}}"
    return [
        pod(f"{name}-0", ip, namespace, spec.format("n1", name), mesh),
        pod(f"{name}-0", ip, namespace, spec.format("n2", "other"), mesh),
        pod(f"{name}-0", ip, namespace, spec.format("n1", name), f"{{app: {name}, version: v2}}", ready=False),
        pod(f"{name}-0", ip, namespace, spec.format("n1", name), "{app: nobody}"),
        pod(f"{name}-0", ip, namespace, spec.format("n1", name), mesh, phase="Failed"),
    ]


def entry(name: str, more: str, namespace: str = "a", **metadata: Any) -> Plain:
    ports = "[{number: 80, name: http, protocol: HTTP}]"
    return make("ServiceEntry", name, f"{{location: MESH_INTERNAL, ports: {ports}, {more}}}", namespace, **metadata)


def rule(name: str, namespace: str, policy: str) -> Plain:
    subsets = "[{name: v2, labels: {version: v2}}]"
    return make(
        "DestinationRule",
        name,
        f"{{host: '{name}.b.svc.cluster.local', trafficPolicy: {policy}, subsets: {subsets}}}",
        namespace,
    )


NETWORK = "{topology.istio.io/network: net2}"
GATEWAY_SPEC = "{clusterIP: 10.96.0.9, externalIPs: [9.9.9.9], ports: [{name: tls, port: 15443}]}"
GATEWAY = make("Service", "eastwest", GATEWAY_SPEC, "istio-system", labels=NETWORK)
# Each slot has one of its variants, or none.
SLOTS: list[list[Plain]] = [
    service_variants("alpha", "a"),
    service_variants("beta", "b"),
    slice_variants("alpha", "a", "10.1.0.1"),
    slice_variants("beta", "b", "10.1.0.2"),
    pod_variants("alpha", "a", "10.1.0.1"),
    pod_variants("beta", "b", "10.1.0.2"),
    [make("Node", "n1", labels=f"{{topology.kubernetes.io/region: {r}}}") for r in ("r1", "r2")],
    [make("Node", "n2", labels="{topology.kubernetes.io/region: r1, topology.kubernetes.io/zone: z}")],
    [
        make("Namespace", "b", annotations="{networking.istio.io/traffic-distribution: PreferSameNode}"),
        make("Namespace", "b"),
    ],
    [make("Namespace", "istio-system", labels=NETWORK)],
    [GATEWAY],
    [
        entry("vm", "hosts: [vm.example.com], resolution: STATIC, workloadSelector: {labels: {app: alpha}}"),
        entry(
            "vm",
            "hosts: [vm.example.com, alpha.a.svc.cluster.local], resolution: STATIC, endpoints: [{address: 10.9.0.1, network: net2}]",
        ),
        entry(
            "vm",
            "hosts: [vm.example.com], exportTo: ['.'], resolution: STATIC, addresses: [10.6.0.1, 10.6.0.2], endpoints: [{address: 9.9.9.8}]",
        ),
    ],
    [
        entry("again", "hosts: [vm.example.com, dns.example.com], resolution: DNS", day=3),
        entry("again", "hosts: [vm.example.com], resolution: STATIC, endpoints: [{address: 10.9.9.8}]", day=3),
        entry("again", "hosts: [dns.example.com], resolution: DNS", "b", day=3),
    ],
    [
        make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {app: alpha}, serviceAccount: vm}"),
        make(
            "WorkloadEntry",
            "vm",
            "{address: 10.9.0.1, labels: {app: alpha}, ports: {http: 81, web: 8}, locality: r2/z, weight: 5, network: net2}",
        ),
        make("WorkloadEntry", "vm", "{address: vm.example.net, labels: {app: alpha}}"),
    ],
    [
        rule("beta", "b", "{outlierDetection: {consecutive5xxErrors: 3}}"),
        rule(
            "beta",
            "b",
            "{outlierDetection: {minHealthPercent: 10}, loadBalancer: {localityLbSetting: {failoverPriority: [app]}}}",
        ),
        rule("beta", "b", "{tls: {mode: DISABLE}}"),
        rule(
            "beta", "b", "{loadBalancer: {localityLbSetting: {distribute: [{from: r1/*, to: {r1/*: 80, r2/*: 20}}]}}}"
        ),
    ],
    [make("PeerAuthentication", "default", f"{{mtls: {{mode: {mode}}}}}", "b") for mode in ("DISABLE", "STRICT")],
    [
        make(
            "PeerAuthentication",
            "ports",
            "{selector: {matchLabels: {app: alpha}}, portLevelMtls: {8080: {mode: DISABLE}}}",
        )
    ],
]
# Objects in a second cluster, some of them with the same names.
WEST_SLOTS: list[list[Plain]] = [
    service_variants("alpha", "a", "10.97.0.1"),
    slice_variants("alpha", "a", "10.2.0.1"),
    pod_variants("alpha", "a", "10.2.0.1"),
    [make("Node", "n1", labels="{topology.kubernetes.io/region: r3}")],
    [make("Namespace", "istio-system", labels=NETWORK)],
    [make("Namespace", "a", annotations="{networking.istio.io/traffic-distribution: PreferClose}")],
    [make("Service", "eastwest", GATEWAY_SPEC.replace("9.9.9.9", "8.8.8.8"), "istio-system", labels=NETWORK)],
    [make("WorkloadEntry", "vm", "{address: 10.9.0.1, labels: {app: alpha}, locality: r4}")],
]
DECODED: list[list[Rows]] = [[rows_of([variant]) for variant in variants] for variants in SLOTS]
DECODED += [[rows_of([variant], "west") for variant in variants] for variants in WEST_SLOTS]


def derive(mesh: Mesh, keys: list[str], watched: list[Any] | None = None) -> dict[str, Any]:
    """Return all values of the registry as plain data."""
    refs = service_refs(mesh)
    values: dict[str, Any] = {"refs": refs, "a": visible_refs(mesh, "a"), "z": visible_refs(mesh, "z")}
    values["services"] = {r: (service(mesh, r), service_accounts(mesh, r)) for r in refs}
    for key in keys:
        facet = outbound_facet(mesh, key)
        if watched is not None:
            watched.append(mesh.watch(outbound_load_assignments, facet))
        endpoints = {k.name: r.any for k, r in outbound_load_assignments(mesh, facet).items()}
        values[key] = (service_targets(mesh, key), proxy_labels(mesh, key), facet, endpoints)
    return values


def start(rows: Rows) -> tuple[World, list[str]]:
    env = World()
    env.set(rows)
    return env, [env.connect(p) for p in PROXIES]


@pytest.mark.parametrize("run", range(12))
def test_random_edits(seed: int, run: int) -> None:
    rng = random.Random(seed * 1000 + run)
    current: list[Rows] = [rng.choice([*variants, {}]) for variants in DECODED]
    live, keys = start({k: v for rows in current for k, v in rows.items()})
    watched: list[Any] = []
    for _ in range(STEPS):
        edits: dict[Any, Any] = {}
        for slot in rng.sample(range(len(DECODED)), rng.choice((1, 1, 2))):
            new = rng.choice([*DECODED[slot], {}])
            edits |= dict.fromkeys(current[slot], None) | new
            current[slot] = new
        live.set(edits)
        previous, watched = watched, []
        actual = derive(live.mesh, keys, watched)
        for node in previous:
            live.mesh.unwatch(node)
        live.mesh.collect()
        reference, reference_keys = start({k: v for rows in current for k, v in rows.items()})
        assert actual == derive(reference.mesh, reference_keys)
    assert live.failures == []


# -- cost ------------------------------------------------------------------------------------------------------------------

PLAIN = "{{clusterIP: 10.96.1.{i}, selector: {{app: s-{i}}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}"


def large_mesh() -> tuple[World, list[str]]:
    """Return a mesh with 200 services, and proxies in two namespaces."""
    objects = []
    for i in range(200):
        namespace = f"ns-{i % 10}"
        objects += [
            make("Service", f"s-{i}", PLAIN.format(i=i), namespace),
            endpoint_slice(f"s-{i}", at(f"10.2.0.{i}", f"s-{i}-0", namespace=namespace), namespace=namespace),
            pod(f"s-{i}-0", f"10.2.0.{i}", namespace, labels=f"{{app: s-{i}}}"),
        ]
    env = world(*objects)
    return env, [env.connect(proxy("sidecar", f"s-{i}-0", f"ns-{i}", f"10.2.0.{i}")) for i in (0, 1)]


def runs_after(env: World, keys: list[str], *objects: Plain) -> list[str]:
    """Return the derivations that run for an edit of a fully derived mesh."""
    for key in keys:
        env.mesh.watch(outbound_load_assignments, env.mesh.watch(outbound_facet, key).value)
        env.mesh.watch(service_targets, key)
    runs: list[str] = []
    env.mesh.on_run = lambda node: runs.append(str(node.fn))
    env.set(rows_of(objects))
    for key in keys:
        outbound_load_assignments(env.mesh, outbound_facet(env.mesh, key))
        service_targets(env.mesh, key)
    return sorted(runs)


def test_endpoint_event_runs_only_its_service() -> None:
    edit = endpoint_slice("s-7", at("10.2.0.7", "s-7-0", namespace="ns-7"), at("10.3.0.1"), namespace="ns-7")
    runs = runs_after(*large_mesh(), edit)
    assert len(runs) <= 10
    assert runs.count("_load_assignment") == 1  # one for both namespaces


def test_annotation_runs_nothing_and_pod_status_only_its_workload() -> None:
    annotated = make("Service", "s-7", PLAIN.format(i=7), "ns-7")
    annotated["metadata"]["annotations"] = {"example.com/note": "x"}
    assert runs_after(*large_mesh(), annotated) == []
    updated_pod = pod("s-7-0", "10.2.0.7", "ns-7", labels="{app: s-7}")
    updated_pod["status"]["conditions"].append({"type": "Initialized", "status": "True"})
    assert runs_after(*large_mesh(), updated_pod) == ["Pod", "load_assignments", "load_assignments", "pod_workload"]

"""Service targets, labels, locality and network of a proxy's workload."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.mesh.model.endpoint import Locality
from pilot.mesh.model.proxy import Proxy
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.workloads import proxy_labels, proxy_locality, proxy_network
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world
from testing.mesh.world import World, proxy

PORTS = "[{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}, {name: dns, containerPort: 5353, protocol: UDP}]"
POD = pod(
    "alpha-0",
    "10.1.0.1",
    labels="{app: alpha, version: v1}",
    spec=f"{{nodeName: n, containers: [{{name: c, image: i, ports: {PORTS}}}]}}",
)
NODE = make("Node", "n", labels="{topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z}")


def sidecar(name: str = "alpha-0", ip: str = "10.1.0.1", **metadata: Any) -> Proxy:
    return proxy("sidecar", name, "a", ip, **metadata)


def service(
    name: str,
    ports: str = "[{name: http, port: 80, targetPort: 8080}]",
    selector: str = "{app: alpha}",
    **metadata: Any,
) -> Plain:
    return make("Service", name, f"{{clusterIP: 10.96.0.1, selector: {selector}, ports: {ports}}}", **metadata)


def targets(harness: World, client: Proxy | None = None) -> list[tuple[str, int, int]]:
    """Return hosts without their domain, ports and target ports."""
    rows = service_targets(harness.mesh, harness.connect(client or sidecar()))
    return [(t.ref.hostname.removesuffix(".svc.cluster.local"), t.port.number, t.target_port) for t in rows]


# -- by its Pod --------------------------------------------------------------------------------------------------------------


def test_targets_are_services_selecting_the_pod_oldest_first() -> None:
    harness = world(
        POD,
        service("young", day=3),
        service("old", day=1),
        service("b-same", selector="{version: v1, app: alpha}", day=2),
        service("a-same", day=2),
        service("others", selector="{app: alpha, version: v2}"),
        service("none", selector="{}"),
        service("elsewhere", namespace="b"),
    )
    assert targets(harness) == [
        ("old.a", 80, 8080),
        ("a-same.a", 80, 8080),
        ("b-same.a", 80, 8080),
        ("young.a", 80, 8080),
    ]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        ("[{name: http, port: 80, targetPort: metrics}]", [(80, 9090)]),
        ("[{name: http, port: 80}]", [(80, 80)]),
        ("[{name: http, port: 80, targetPort: nothing}, {name: tcp, port: 81, targetPort: 82}]", [(81, 82)]),
        ("[{name: http-a, port: 80, targetPort: 8080}, {name: http-b, port: 81, targetPort: http}]", [(80, 8080)]),
        (
            "[{name: http, port: 80, targetPort: 8080}, {name: tcp, port: 81, targetPort: http}]",
            [(80, 8080), (81, 8080)],
        ),
        (
            "[{name: dns, port: 53, protocol: UDP, targetPort: dns}, {name: tcp-dns, port: 53, targetPort: dns}]",
            [(53, 5353)],
        ),
    ],
)
def test_target_ports(ports: str, expected: list[tuple[int, int]]) -> None:
    assert [t[1:] for t in targets(world(POD, service("alpha", ports)))] == expected


def test_sidecar_container_ports_are_target_ports() -> None:
    containers = "{initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{name: late, containerPort: 7}]}, {name: once, image: i}]}"
    harness = world(
        pod("alpha-0", "10.1.0.1", labels="{app: alpha}", spec=containers),
        service("alpha", "[{name: http, port: 80, targetPort: late}]"),
    )
    assert targets(harness) == [("alpha.a", 80, 7)]


def test_pod_without_a_selecting_service_uses_endpoint_slices() -> None:
    harness = world(
        POD,
        service("listed", selector="{}"),
        service("other", selector="{}"),
        endpoint_slice("listed", at("10.1.0.1", "alpha-0")),
        endpoint_slice("other", at("10.1.0.2")),
    )
    assert targets(harness) == [("listed.a", 80, 8080)]


# -- without a Pod -----------------------------------------------------------------------------------------------------------


def test_unknown_pod_uses_its_announced_labels() -> None:
    harness = world(service("alpha"), service("other", selector="{app: beta}"))
    assert targets(harness, proxy("sidecar", "gone-0", "a", "10.1.0.9", {"app": "alpha"})) == [("alpha.a", 80, 8080)]


@pytest.mark.parametrize(
    ("pod_ports", "expected"),
    [
        (None, [("alpha.a", 80, 0)]),
        ([{"name": "web", "containerPort": 81, "protocol": "TCP"}], [("alpha.a", 80, 81)]),
        ([{"name": "web", "containerPort": 81, "protocol": "UDP"}], []),
    ],
)
def test_named_target_ports_of_an_unknown_pod(pod_ports: list[dict[str, Any]] | None, expected: list[Any]) -> None:
    harness = world(service("alpha", "[{name: http, port: 80, targetPort: web}]"))
    metadata = {"POD_PORTS": pod_ports} if pod_ports is not None else {}
    assert targets(harness, proxy("sidecar", "gone-0", "a", "10.1.0.9", {"app": "alpha"}, **metadata)) == expected


def test_lookup_by_ip_requires_the_setting() -> None:
    renamed = sidecar("renamed")
    assert targets(world(POD, service("alpha")), renamed) == []
    assert targets(world(POD, service("alpha"), ENABLE_PROXY_FIND_POD_BY_IP="true"), renamed) == [("alpha.a", 80, 8080)]


def test_proxy_of_another_cluster_has_no_local_targets() -> None:
    elsewhere = sidecar(CLUSTER_ID="other")
    harness = world(POD, service("alpha"))
    assert targets(harness, elsewhere) == []
    assert "app" not in proxy_labels(harness.mesh, harness.connect(elsewhere))


# -- by WorkloadEntries and ServiceEntries -----------------------------------------------------------------------------------


def vm(name: str, address: str, more: str = "", **metadata: Any) -> Plain:
    return make("WorkloadEntry", name, f"{{address: {address}, labels: {{app: alpha}}{more}}}", **metadata)


def test_virtual_machine_serves_services_selecting_its_entry() -> None:
    ports = "[{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP}]"
    harness = world(vm("vm", "10.9.0.1", ", ports: {http: 8081}"), service("alpha", ports))
    assert targets(harness, sidecar("vm", "10.9.0.1")) == [("alpha.a", 80, 8081)]


def test_entry_with_the_proxy_name_wins_among_entries_with_its_address() -> None:
    harness = world(
        vm("first", "10.9.0.1"),
        make("WorkloadEntry", "second", "{address: 10.9.0.1, labels: {app: beta}}"),
        service("alpha"),
        service("beta", selector="{app: beta}"),
    )
    assert targets(harness, sidecar("second", "10.9.0.1")) == [("beta.a", 80, 8080)]
    assert targets(harness, sidecar("third", "10.9.0.1")) == [("alpha.a", 80, 8080)]


def entry(name: str, host: str, more: str, **metadata: Any) -> Plain:
    ports = (
        "[{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 81, name: http-more, protocol: HTTP}]"
    )
    return make(
        "ServiceEntry", name, f"{{hosts: [{host}.example.com], resolution: STATIC, ports: {ports}, {more}}}", **metadata
    )


def test_service_entries_by_endpoint_address_or_selector() -> None:
    harness = world(
        POD,
        entry("names", "x", "endpoints: [{address: 10.1.0.1, ports: {http: 7}}]"),
        entry("selects", "y", "workloadSelector: {labels: {version: v1}}", day=2),
        entry("elsewhere", "z", "endpoints: [{address: 10.1.0.1}]", namespace="b"),
        entry("other", "w", "workloadSelector: {labels: {version: v2}}"),
        entry("every", "v", "workloadSelector: {}", day=3),
    )
    assert targets(harness) == [
        ("x.example.com", 80, 7),
        ("x.example.com", 81, 81),
        ("y.example.com", 80, 8080),
        ("y.example.com", 81, 81),
        ("v.example.com", 80, 8080),
        ("v.example.com", 81, 81),
    ]


# -- labels and locality -----------------------------------------------------------------------------------------------------


def test_registry_labels_override_announced_labels() -> None:
    harness = world(POD, NODE)
    metadata = {"STATIC_LABELS": {"static": "x", "app": "y"}, "NODE_NAME": "n", "NETWORK": "net"}
    key = harness.connect(proxy("sidecar", "alpha-0", "a", "10.1.0.1", {"app": "old"}, **metadata))
    assert proxy_labels(harness.mesh, key) == {
        "static": "x",
        "app": "alpha",
        "version": "v1",
        "topology.kubernetes.io/region": "r",
        "topology.kubernetes.io/zone": "z",
        "topology.istio.io/cluster": "Kubernetes",
        "kubernetes.io/hostname": "n",
        "topology.istio.io/network": "net",
    }
    assert proxy_locality(harness.mesh, key) == Locality("r", "z")
    assert proxy_network(harness.mesh, key) == "net"


def test_unregistered_proxy_uses_its_announced_locality() -> None:
    harness = world()
    unknown = msgspec.structs.replace(proxy("sidecar", "x-0", "a", "10.1.0.9", {"app": "x"}), locality=Locality("r9"))
    key = harness.connect(unknown)
    assert proxy_locality(harness.mesh, key) == Locality("r9")
    assert proxy_labels(harness.mesh, key)["topology.kubernetes.io/region"] == "r9"


def test_virtual_machine_uses_the_locality_of_its_entry() -> None:
    harness = world(
        vm("vm", "10.9.0.1", ", locality: r/z/s"), entry("x", "x", "workloadSelector: {labels: {app: alpha}}")
    )
    key = harness.connect(sidecar("vm", "10.9.0.1"))
    assert proxy_locality(harness.mesh, key) == Locality("r", "z", "s")
    assert proxy_labels(harness.mesh, key)["app"] == "alpha"

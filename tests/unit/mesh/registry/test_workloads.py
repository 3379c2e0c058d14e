"""What is known of a proxy's own workload: the services that it serves, its labels, where it runs."""

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


def targets(made: World, connected: Proxy | None = None) -> list[tuple[str, int, int]]:
    """Host without its domain, port, target port."""
    found = service_targets(made.mesh, made.connect(connected or sidecar()))
    return [(t.ref.hostname.removesuffix(".svc.cluster.local"), t.port.number, t.target_port) for t in found]


# -- by its Pod --------------------------------------------------------------------------------------------------------------


def test_services_that_select_its_pod_by_their_age() -> None:
    made = world(
        POD,
        service("young", day=3),
        service("old", day=1),
        service("b-same", selector="{version: v1, app: alpha}", day=2),
        service("a-same", day=2),
        service("others", selector="{app: alpha, version: v2}"),
        service("none", selector="{}"),
        service("elsewhere", namespace="b"),
    )
    assert targets(made) == [("old.a", 80, 8080), ("a-same.a", 80, 8080), ("b-same.a", 80, 8080), ("young.a", 80, 8080)]


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


def test_ports_of_sidecar_containers_count() -> None:
    containers = "{initContainers: [{name: s, image: i, restartPolicy: Always, ports: [{name: late, containerPort: 7}]}, {name: once, image: i}]}"
    made = world(
        pod("alpha-0", "10.1.0.1", labels="{app: alpha}", spec=containers),
        service("alpha", "[{name: http, port: 80, targetPort: late}]"),
    )
    assert targets(made) == [("alpha.a", 80, 7)]


def test_a_pod_that_no_service_selects_is_found_in_endpoint_slices() -> None:
    made = world(
        POD,
        service("listed", selector="{}"),
        service("other", selector="{}"),
        endpoint_slice("listed", at("10.1.0.1", "alpha-0")),
        endpoint_slice("other", at("10.1.0.2")),
    )
    assert targets(made) == [("listed.a", 80, 8080)]


# -- without its Pod ---------------------------------------------------------------------------------------------------------


def test_an_unknown_pod_is_taken_by_the_labels_that_it_announces() -> None:
    made = world(service("alpha"), service("other", selector="{app: beta}"))
    assert targets(made, proxy("sidecar", "gone-0", "a", "10.1.0.9", {"app": "alpha"})) == [("alpha.a", 80, 8080)]


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        (None, [("alpha.a", 80, 0)]),
        ([{"name": "web", "containerPort": 81, "protocol": "TCP"}], [("alpha.a", 80, 81)]),
        ([{"name": "web", "containerPort": 81, "protocol": "UDP"}], []),
    ],
)
def test_named_target_ports_of_an_unknown_pod(announced: list[dict[str, Any]] | None, expected: list[Any]) -> None:
    made = world(service("alpha", "[{name: http, port: 80, targetPort: web}]"))
    metadata = {"POD_PORTS": announced} if announced is not None else {}
    assert targets(made, proxy("sidecar", "gone-0", "a", "10.1.0.9", {"app": "alpha"}, **metadata)) == expected


def test_a_pod_is_found_by_address_only_where_the_setting_says_so() -> None:
    renamed = sidecar("renamed")
    assert targets(world(POD, service("alpha")), renamed) == []
    assert targets(world(POD, service("alpha"), ENABLE_PROXY_FIND_POD_BY_IP="true"), renamed) == [("alpha.a", 80, 8080)]


def test_a_proxy_of_another_cluster_serves_none_of_the_services_here() -> None:
    elsewhere = sidecar(CLUSTER_ID="other")
    made = world(POD, service("alpha"))
    assert targets(made, elsewhere) == []
    assert "app" not in proxy_labels(made.mesh, made.connect(elsewhere))


# -- by WorkloadEntries and ServiceEntries -----------------------------------------------------------------------------------


def vm(name: str, address: str, more: str = "", **metadata: Any) -> Plain:
    return make("WorkloadEntry", name, f"{{address: {address}, labels: {{app: alpha}}{more}}}", **metadata)


def test_a_virtual_machine_serves_what_selects_its_entry() -> None:
    ports = "[{name: http, port: 80, targetPort: 8080}, {name: dns, port: 53, protocol: UDP}]"
    made = world(vm("vm", "10.9.0.1", ", ports: {http: 8081}"), service("alpha", ports))
    assert targets(made, sidecar("vm", "10.9.0.1")) == [("alpha.a", 80, 8081)]


def test_of_several_entries_of_an_address_that_of_its_name_counts() -> None:
    made = world(
        vm("first", "10.9.0.1"),
        make("WorkloadEntry", "second", "{address: 10.9.0.1, labels: {app: beta}}"),
        service("alpha"),
        service("beta", selector="{app: beta}"),
    )
    assert targets(made, sidecar("second", "10.9.0.1")) == [("beta.a", 80, 8080)]
    assert targets(made, sidecar("third", "10.9.0.1")) == [("alpha.a", 80, 8080)]


def entry(name: str, host: str, more: str, **metadata: Any) -> Plain:
    ports = (
        "[{number: 80, name: http, protocol: HTTP, targetPort: 8080}, {number: 81, name: http-more, protocol: HTTP}]"
    )
    return make(
        "ServiceEntry", name, f"{{hosts: [{host}.example.com], resolution: STATIC, ports: {ports}, {more}}}", **metadata
    )


def test_entries_that_name_its_address_or_select_it() -> None:
    made = world(
        POD,
        entry("names", "x", "endpoints: [{address: 10.1.0.1, ports: {http: 7}}]"),
        entry("selects", "y", "workloadSelector: {labels: {version: v1}}", day=2),
        entry("elsewhere", "z", "endpoints: [{address: 10.1.0.1}]", namespace="b"),
        entry("other", "w", "workloadSelector: {labels: {version: v2}}"),
    )
    assert targets(made) == [
        ("x.example.com", 80, 7),
        ("x.example.com", 81, 81),
        ("y.example.com", 80, 8080),
        ("y.example.com", 81, 81),
    ]


# -- labels and place --------------------------------------------------------------------------------------------------------


def test_labels_of_the_registry_come_before_announced_ones() -> None:
    made = world(POD, NODE)
    metadata = {"STATIC_LABELS": {"static": "x", "app": "y"}, "NODE_NAME": "n", "NETWORK": "net"}
    key = made.connect(proxy("sidecar", "alpha-0", "a", "10.1.0.1", {"app": "old"}, **metadata))
    assert proxy_labels(made.mesh, key) == {
        "static": "x",
        "app": "alpha",
        "version": "v1",
        "topology.kubernetes.io/region": "r",
        "topology.kubernetes.io/zone": "z",
        "topology.istio.io/cluster": "Kubernetes",
        "kubernetes.io/hostname": "n",
        "topology.istio.io/network": "net",
    }
    assert proxy_locality(made.mesh, key) == Locality("r", "z")
    assert proxy_network(made.mesh, key) == "net"


def test_a_proxy_without_a_registry_is_where_its_node_says() -> None:
    made = world()
    unknown = msgspec.structs.replace(proxy("sidecar", "x-0", "a", "10.1.0.9", {"app": "x"}), locality=Locality("r9"))
    key = made.connect(unknown)
    assert proxy_locality(made.mesh, key) == Locality("r9")
    assert proxy_labels(made.mesh, key)["topology.kubernetes.io/region"] == "r9"


def test_a_virtual_machine_is_where_its_entry_says() -> None:
    made = world(vm("vm", "10.9.0.1", ", locality: r/z/s"), entry("x", "x", "workloadSelector: {labels: {app: alpha}}"))
    key = made.connect(sidecar("vm", "10.9.0.1"))
    assert proxy_locality(made.mesh, key) == Locality("r", "z", "s")
    assert proxy_labels(made.mesh, key)["app"] == "alpha"

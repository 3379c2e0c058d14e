"""Endpoints from EndpointSlices, selected WorkloadEntries and ServiceEntries."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.group_kind import GroupKind
from pilot.config.kubernetes.endpoint_slice import EndpointConditions
from pilot.config.kubernetes.pod import OwnerReference, Pod
from pilot.config.object import Object, RegistryKey
from pilot.mesh.model.endpoint import Endpoint, EndpointHealth, Locality
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.endpoint_slices import endpoint_health
from pilot.mesh.registry.endpoints import endpoints, service_accounts
from pilot.mesh.registry.pods import pod_workload, workload_name
from testing.mesh.objects import Plain, at, endpoint_slice, make, pod, world

ALPHA = ServiceRef("alpha.a.svc.cluster.local", "a")
HTTP = "[{name: http, port: 80, targetPort: 8080}]"
SERVICE = make(
    "Service", "alpha", f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1], selector: {{app: alpha}}, ports: {HTTP}}}"
)


def find(*objects: Plain, ref: ServiceRef = ALPHA, port: int = 80, **environ: str) -> list[Endpoint]:
    return list(endpoints(world(*objects, **environ).mesh, ref, port))


# -- EndpointSlices ----------------------------------------------------------------------------------------------------------


def test_endpoint_takes_details_from_its_pod() -> None:
    node = make("Node", "n", labels="{topology.kubernetes.io/region: r, topology.kubernetes.io/zone: z}")
    labels = "{app: alpha, security.istio.io/tlsMode: istio, topology.istio.io/network: net}"
    (endpoint,) = find(
        SERVICE,
        node,
        pod(
            "alpha-0",
            "10.1.0.1",
            spec="{serviceAccountName: sa, nodeName: n, hostname: h, subdomain: alpha}",
            labels=labels,
        ),
        endpoint_slice("alpha", at("10.1.0.1", "alpha-0")),
    )
    assert (endpoint.addresses, endpoint.port, endpoint.port_name, endpoint.namespace, endpoint.health) == (
        ("10.1.0.1",),
        8080,
        "http",
        "a",
        EndpointHealth.HEALTHY,
    )
    assert (endpoint.service_account, endpoint.workload, endpoint.hostname, endpoint.tls_mode) == (
        "spiffe://cluster.local/ns/a/sa/sa",
        "alpha-0",
        "h",
        "istio",
    )
    assert (endpoint.locality, endpoint.locality_text) == (Locality("r", "z"), "r/z/")
    assert (endpoint.node, endpoint.network, endpoint.cluster_id) == ("n", "net", "Kubernetes")
    assert dict(endpoint.labels) == {
        "app": "alpha",
        "security.istio.io/tlsMode": "istio",
        "topology.istio.io/network": "net",
        "topology.istio.io/cluster": "Kubernetes",
        "topology.kubernetes.io/region": "r",
        "topology.kubernetes.io/zone": "z",
        "kubernetes.io/hostname": "n",
    }


def test_endpoints_of_an_unexported_service_exist() -> None:
    parts = (pod("alpha-0", "10.1.0.1"), endpoint_slice("alpha", at("10.1.0.1", "alpha-0")))
    hidden = {**SERVICE, "metadata": {**SERVICE["metadata"], "annotations": {"networking.istio.io/exportTo": "~"}}}
    assert find(hidden, *parts) == find(SERVICE, *parts) != []


@pytest.mark.parametrize(
    ("ready", "serving", "terminating", "sessions", "expected"),
    [
        (None, None, None, False, EndpointHealth.HEALTHY),
        (True, False, True, False, EndpointHealth.HEALTHY),
        (False, True, False, False, EndpointHealth.UNHEALTHY),
        (False, True, False, True, EndpointHealth.UNHEALTHY),
        (False, True, True, False, EndpointHealth.TERMINATING),
        (False, None, None, False, EndpointHealth.TERMINATING),
        (False, True, True, True, EndpointHealth.DRAINING),
        (False, None, None, True, EndpointHealth.DRAINING),
        (False, False, True, True, EndpointHealth.TERMINATING),
    ],
)
def test_health_of_slice_conditions(
    ready: bool | None, serving: bool | None, terminating: bool | None, sessions: bool, expected: EndpointHealth
) -> None:
    assert endpoint_health(EndpointConditions(ready, serving, terminating), sessions) is expected


def test_slices_are_merged_without_duplicate_addresses() -> None:
    rows = find(
        SERVICE,
        endpoint_slice(
            "alpha", at("10.1.0.1"), at("10.1.0.2", conditions="{ready: false, terminating: false}"), name="one"
        ),
        endpoint_slice("alpha", at("10.1.0.2"), at("10.1.0.3"), name="two"),
        endpoint_slice("alpha", at("10.1.0.4"), name="three", ports="[{name: other, port: 1}, {name: http}]"),
        endpoint_slice("alpha", at("x.example.com"), name="names", addressType="FQDN"),
        endpoint_slice("beta", at("10.1.0.5")),
    )
    assert [(e.addresses[0], e.health.name) for e in rows] == [
        ("10.1.0.1", "HEALTHY"),
        ("10.1.0.2", "UNHEALTHY"),
        ("10.1.0.3", "HEALTHY"),
    ]


def test_service_accounts_include_slices_with_other_ports() -> None:
    alpha_pod = pod("alpha-0", "10.1.0.1", spec="{serviceAccountName: sa}")
    other_port = endpoint_slice("alpha", at("10.1.0.1", "alpha-0"), ports="[{name: other, port: 1}]")
    assert find(SERVICE, alpha_pod, other_port) == []
    assert service_accounts(world(SERVICE, alpha_pod, other_port).mesh, ALPHA) == ("spiffe://cluster.local/ns/a/sa/sa",)
    portless = endpoint_slice("alpha", at("10.1.0.1", "alpha-0"), ports="[{name: other}]")
    assert service_accounts(world(SERVICE, alpha_pod, portless).mesh, ALPHA) == ()


def test_multicluster_slices_are_ignored() -> None:
    other = endpoint_slice("alpha", at("10.1.0.1"))
    other["metadata"]["labels"]["multicluster.kubernetes.io/service-name"] = "alpha"
    assert find(SERVICE, other) == []


def test_endpoint_with_a_pod_reference_requires_the_pod() -> None:
    slice_ = endpoint_slice("alpha", at("10.1.0.1", "alpha-0"), at("10.1.0.2"))
    assert [e.addresses[0] for e in find(SERVICE, slice_)] == ["10.1.0.2"]
    assert [e.addresses[0] for e in find(SERVICE, slice_, pod("alpha-0", "10.1.0.1"))] == ["10.1.0.1", "10.1.0.2"]
    assert [e.addresses[0] for e in find(SERVICE, slice_, pod("alpha-0", "10.1.0.1", phase="Failed"))] == ["10.1.0.2"]
    assert [e.addresses[0] for e in find(SERVICE, slice_, pod("alpha-0", "10.1.0.1", ready=False))] == [
        "10.1.0.1",
        "10.1.0.2",
    ]


def test_address_without_a_pod_reference_matches_a_pod_of_its_namespace() -> None:
    slice_ = endpoint_slice("alpha", at("10.1.0.1"))
    matches, mismatches = (
        find(SERVICE, slice_, pod("p", "10.1.0.1")),
        find(SERVICE, slice_, pod("p", "10.1.0.1", namespace="b")),
    )
    assert [e.workload for e in matches + mismatches] == ["p", ""]
    assert (mismatches[0].namespace, mismatches[0].tls_mode, dict(mismatches[0].labels)) == (
        "",
        "disabled",
        {"topology.istio.io/cluster": "Kubernetes"},
    )


def test_dual_stack_pod_is_one_endpoint() -> None:
    both = make("Service", "alpha", f"{{clusterIP: 10.96.0.1, clusterIPs: [10.96.0.1, 'fd00:96::1'], ports: {HTTP}}}")
    objects = [
        both,
        pod("alpha-0", "10.1.0.1,fd00::1"),
        endpoint_slice("alpha", at("10.1.0.1", "alpha-0"), name="four"),
        endpoint_slice("alpha", at("'fd00::1'", "alpha-0"), name="six", addressType="IPv6"),
    ]
    assert [e.addresses for e in find(*objects, ISTIO_DUAL_STACK="true")] == [("10.1.0.1", "fd00::1")]
    assert [e.addresses for e in find(*objects)] == [("10.1.0.1",), ("fd00::1",)]
    assert [e.addresses for e in find(SERVICE, *objects[1:], ISTIO_DUAL_STACK="true")] == [("10.1.0.1",), ("fd00::1",)]


def test_tcp_port_shared_with_udp() -> None:
    dns = make("Service", "alpha", "{ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}")
    slice_ = endpoint_slice(
        "alpha", at("10.1.0.1"), ports="[{name: dns, port: 5353, protocol: UDP}, {name: dns-tcp, port: 5354}]"
    )
    assert [e.port for e in find(dns, slice_, port=53)] == [5354]


# -- Pods --------------------------------------------------------------------------------------------------------------------


def owned(name: str, kind: str, owner: str, labels: dict[str, str], generated: bool = True) -> Object[Pod]:
    spec = Pod(
        generate_name="x-" if generated else "",
        owner_references=(OwnerReference(kind=kind, name=owner, controller=True),),
    )
    return Object(GroupKind("", "Pod"), "a", name, spec, labels)


@pytest.mark.parametrize(
    ("o", "expected"),
    [
        (Object(GroupKind("", "Pod"), "a", "bare", Pod()), "bare"),
        (owned("p", "ReplicaSet", "web-5d4f", {"pod-template-hash": "5d4f"}), "web"),
        (owned("p", "ReplicaSet", "web-5d4f", {"pod-template-hash": "other"}), "web-5d4f"),
        (owned("p", "ReplicaSet", "web-77", {"rollouts-pod-template-hash": "77"}), "web"),
        (owned("p", "ReplicaSet", "web-5d4f", {"pod-template-hash": "5d4f"}, generated=False), "p"),
        (owned("p", "StatefulSet", "db", {}), "db"),
        (owned("p", "Job", "nightly-28123456", {}), "nightly"),
        (owned("p", "Job", "once", {}), "once"),
        (owned("p", "ReplicationController", "dc-3", {"deploymentconfig": "dc"}), "dc"),
        (owned("p", "StatefulSet", "db", {"service.istio.io/workload-name": "mine"}), "mine"),
    ],
)
def test_workload_name_of_a_pod(o: Object[Pod], expected: str) -> None:
    assert workload_name(o) == expected


def test_locality_has_at_most_three_levels() -> None:
    assert [Locality.parse(text) for text in ("", "r", "r/z", "r/z/s", "r/z/s/more")] == [
        Locality(),
        Locality("r"),
        Locality("r", "z"),
        Locality("r", "z", "s"),
        Locality("r", "z", "s"),
    ]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("{topology.istio.io/locality: r2.z2.s2}", "r2/z2/s2"),
        ("{istio-locality: r3}", "r3"),
        ("{topology.istio.io/locality: r4, istio-locality: r3}", "r4"),
        ("{}", "r/z/s"),
    ],
)
def test_locality_of_a_pod(labels: str, expected: str) -> None:
    node = make(
        "Node",
        "n",
        labels="{topology.kubernetes.io/region: r, failure-domain.beta.kubernetes.io/zone: z, topology.istio.io/subzone: s}",
    )
    workload = pod_workload(
        world(node, pod("p", "10.0.0.1", spec="{nodeName: n}", labels=labels)).mesh, RegistryKey("Kubernetes", "a", "p")
    )
    assert workload is not None
    assert workload.locality == expected


# -- WorkloadEntries of a Kubernetes Service ---------------------------------------------------------------------------------


def vm(name: str, address: str, more: str = "", **metadata: Any) -> Plain:
    return make("WorkloadEntry", name, f"{{address: '{address}', labels: {{app: alpha}}{more}}}", **metadata)


def test_service_selects_workload_entries() -> None:
    rows = find(
        SERVICE,
        vm("vm", "10.9.0.1", ", serviceAccount: sa, weight: 3, locality: r/z, network: net"),
        vm("port", "10.9.0.2", ", ports: {http: 9999}"),
        vm("dns", "vm.example.com"),
        vm("socket", "unix:///x"),
        vm("elsewhere", "10.9.0.3", namespace="b"),
        vm("other", "10.9.0.4", labels="{app: beta}"),
    )
    assert [(e.addresses[0], e.port, e.workload) for e in rows] == [
        ("10.9.0.2", 9999, "port"),
        ("10.9.0.1", 8080, "vm"),
    ]
    assert (rows[1].weight, rows[1].locality_text, rows[1].network, rows[1].tls_mode) == (3, "r/z", "net", "istio")
    assert (rows[1].service_account, rows[1].health) == ("spiffe://cluster.local/ns/a/sa/sa", EndpointHealth.UNKNOWN)


def test_health_checked_entry_requires_a_healthy_status() -> None:
    checked = vm("vm", "10.9.0.1", annotations="{proxy.istio.io/health-checks-enabled: 'true'}")
    healthy = checked | {"status": {"conditions": [{"type": "Healthy", "status": "True"}]}}
    unhealthy = checked | {"status": {"conditions": [{"type": "Healthy", "status": "False"}]}}
    assert [len(find(SERVICE, e)) for e in (checked, healthy, unhealthy, vm("vm", "10.9.0.1"))] == [0, 1, 0, 1]
    assert len(find(SERVICE, unhealthy, PILOT_ENABLE_WORKLOAD_ENTRY_HEALTHCHECKS="false")) == 1


def test_named_target_port_must_exist_on_the_entry() -> None:
    named_port = make(
        "Service",
        "alpha",
        "{clusterIP: 10.96.0.1, selector: {app: alpha}, ports: [{name: http, port: 80, targetPort: web}]}",
    )
    rows = find(
        named_port,
        vm("has", "10.9.0.1", ", ports: {web: 81, http: 82}"),
        vm("lacks", "10.9.0.2", ", ports: {http: 82}"),
    )
    assert [(e.addresses[0], e.port) for e in rows] == [("10.9.0.1", 81)]


def test_headless_services_select_no_workload_entries() -> None:
    assert (
        find(
            make("Service", "alpha", f"{{clusterIP: None, selector: {{app: alpha}}, ports: {HTTP}}}"),
            vm("vm", "10.9.0.1"),
        )
        == []
    )
    assert find(SERVICE, vm("vm", "10.9.0.1"), PILOT_ENABLE_K8S_SELECT_WORKLOAD_ENTRIES="false") == []


# -- ServiceEntries ----------------------------------------------------------------------------------------------------------

X = ServiceRef("x.example.com", "a")


def entry(
    more: str,
    name: str = "ext",
    ports: str = "[{number: 80, name: http, protocol: HTTP, targetPort: 8080}]",
    **metadata: Any,
) -> Plain:
    return make(
        "ServiceEntry", name, f"{{hosts: [x.example.com], location: MESH_INTERNAL, ports: {ports}, {more}}}", **metadata
    )


def test_inline_endpoints_of_a_service_entry() -> None:
    slice_ = (
        "[{address: 10.9.0.1, ports: {http: 81}, weight: 2, labels: {app: x, security.istio.io/tlsMode: istio}}, "
        "{address: 10.9.0.2, serviceAccount: sa, locality: r/z/s}]"
    )
    one, two = find(entry(f"resolution: STATIC, endpoints: {slice_}"), ref=X)
    assert (one.addresses, one.port, one.weight, one.tls_mode, one.workload, one.namespace) == (
        ("10.9.0.1",),
        81,
        2,
        "istio",
        "ext-0",
        "a",
    )
    assert (two.port, two.tls_mode, two.service_account) == (8080, "istio", "spiffe://cluster.local/ns/a/sa/sa")
    assert two.locality == Locality("r", "z", "s")
    assert one.health is EndpointHealth.UNKNOWN


def test_unix_socket_endpoint_has_port_zero() -> None:
    (endpoint,) = find(
        entry(
            "resolution: STATIC, endpoints: [{address: 'unix:///run/x'}]",
            ports="[{number: 80, name: http, protocol: HTTP}]",
        ),
        ref=X,
    )
    assert (endpoint.addresses, endpoint.port) == (("/run/x",), 0)


def test_dns_entry_without_endpoints_uses_its_host() -> None:
    (endpoint,) = find(entry("resolution: DNS"), ref=X)
    assert (endpoint.addresses, endpoint.port, endpoint.workload, endpoint.labels) == (
        ("x.example.com",),
        8080,
        "ext",
        frozenset(),
    )
    assert find(entry("resolution: NONE"), ref=X) == []


def test_endpoint_repeats_for_every_different_entry_address() -> None:
    addresses = "[10.7.0.1, 10.7.0.2, 10.7.0.2/32]"
    rows = find(entry(f"resolution: STATIC, addresses: {addresses}, endpoints: [{{address: 10.9.0.1}}]"), ref=X)
    assert [e.addresses[0] for e in rows] == ["10.9.0.1", "10.9.0.1"]


@pytest.mark.parametrize(("count", "result"), [(1, 100), (40, 80), (300, 300)])
def test_product_of_addresses_and_endpoints_of_an_entry_is_limited(count: int, result: int) -> None:
    addresses = ", ".join(f"10.7.{n >> 8}.{n & 255}" for n in range(1000))
    own = ", ".join(f"{{address: 10.9.{n >> 8}.{n & 255}}}" for n in range(count))
    rows = find(entry(f"resolution: STATIC, addresses: [{addresses}], endpoints: [{own}]"), ref=X)
    assert (len(rows), len({e.addresses for e in rows})) == (result, count)


def test_dns_round_robin_uses_one_endpoint() -> None:
    endpoint = "resolution: DNS_ROUND_ROBIN, endpoints: [{{address: {}.example.net}}]"
    rows = find(entry(endpoint.format("old"), "old", day=1), entry(endpoint.format("new"), "new", day=2), ref=X)
    assert [e.addresses[0] for e in rows] == ["old.example.net"]


def test_entry_selects_ready_pods_and_workload_entries_of_its_namespace() -> None:
    selecting = "workloadSelector: {labels: {app: alpha}}"
    labels = "{app: alpha}"
    objects = [
        vm("vm", "10.9.0.1", ", ports: {http: 9080}"),
        vm("dns", "vm.example.com"),
        pod(
            "ready",
            "10.1.0.1",
            labels=labels,
            spec="{containers: [{name: c, image: i, ports: [{name: http, containerPort: 8888}]}]}",
        ),
        pod("waiting", "10.1.0.2", labels=labels, ready=False),
        pod("leaving", "10.1.0.3", labels=labels, deletionTimestamp="2025-01-02T00:00:00Z"),
        pod("elsewhere", "10.1.0.4", labels=labels, namespace="b"),
        pod("other", "10.1.0.5", labels="{app: beta}"),
    ]
    rows = find(*objects, entry(f"resolution: STATIC, {selecting}"), ref=X)
    assert [(e.addresses[0], e.port, e.health.name) for e in rows] == [
        ("10.1.0.1", 8888, "HEALTHY"),
        ("10.9.0.1", 9080, "UNKNOWN"),
    ]
    rows = find(*objects, entry(f"resolution: DNS, {selecting}"), ref=X)
    assert [e.addresses[0] for e in rows] == ["10.1.0.1", "vm.example.com", "10.9.0.1"]
    rows = find(
        *objects, entry(f"resolution: STATIC, {selecting}"), ref=X, PILOT_ENABLE_SERVICEENTRY_SELECT_PODS="false"
    )
    assert [e.addresses[0] for e in rows] == ["10.9.0.1"]


@pytest.mark.parametrize("selector", ["{}", "{labels: {}}"])
def test_entry_with_an_empty_selector_selects_every_workload_of_its_namespace(selector: str) -> None:
    objects = [
        vm("vm", "10.9.0.1"),
        pod("alpha", "10.1.0.1", labels="{app: alpha}"),
        pod("bare", "10.1.0.2", labels="{}"),
        pod("elsewhere", "10.1.0.4", namespace="b"),
    ]
    rows = find(*objects, entry(f"resolution: STATIC, workloadSelector: {selector}"), ref=X)
    assert [e.addresses[0] for e in rows] == ["10.1.0.1", "10.1.0.2", "10.9.0.1"]


def test_entry_adds_endpoints_to_a_kubernetes_service_by_port_name() -> None:
    added = make(
        "ServiceEntry",
        "more",
        "{hosts: [alpha.a.svc.cluster.local], location: MESH_INTERNAL, resolution: STATIC, endpoints: [{address: 10.9.0.1}],"
        " ports: [{number: 8081, name: http, protocol: HTTP}]}",
    )
    rows = find(SERVICE, endpoint_slice("alpha", at("10.1.0.1")), added)
    assert [(e.addresses[0], e.port) for e in rows] == [("10.9.0.1", 8081), ("10.1.0.1", 8080)]


# -- identities --------------------------------------------------------------------------------------------------------------


def test_service_accounts() -> None:
    annotated = make(
        "Service",
        "alpha",
        f"{{ports: {HTTP}}}",
        annotations="{alpha.istio.io/canonical-serviceaccounts: san.example.com}",
    )
    objects = [
        annotated,
        pod("one", "10.1.0.1", spec="{serviceAccountName: one}"),
        pod("two", "10.1.0.2", spec="{serviceAccountName: two}"),
        endpoint_slice("alpha", at("10.1.0.1", "one"), at("10.1.0.2", "two")),
    ]
    assert service_accounts(world(*objects).mesh, ALPHA) == (
        "san.example.com",
        "spiffe://cluster.local/ns/a/sa/one",
        "spiffe://cluster.local/ns/a/sa/two",
    )
    aliased = world(*objects, mesh_config="trustDomainAliases: [old]").mesh
    assert set(service_accounts(aliased, ALPHA)) >= {
        "spiffe://old/ns/a/sa/one",
        "spiffe://cluster.local/ns/a/sa/one",
        "san.example.com",
    }

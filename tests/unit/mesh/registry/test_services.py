"""Services declared by Kubernetes Services and ServiceEntries, their visibility and their order."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MatchRule, Policy, ServiceEntryVisibility
from pilot.config.protocol import Protocol, port_protocol
from pilot.config.selector import LabelSelector, LabelSelectorRequirement
from pilot.mesh.model.service import PUBLIC, Registry, Resolution, Service, ServiceRef
from pilot.mesh.model.visibility import entry_visibility, limit_export, resolve_export_to, selects
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.services import (
    entry_services,
    is_visible,
    refs_by_hostname,
    refs_in_namespace,
    service,
    service_refs,
    visible_refs,
)
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import rows_of

ALPHA = ServiceRef("alpha.a.svc.cluster.local", "a")


def kubernetes(spec: str = "{}", name: str = "alpha", **metadata: Any) -> Plain:
    return make("Service", name, spec, **metadata)


def entry(spec: str, name: str = "ext", **metadata: Any) -> Plain:
    return make("ServiceEntry", name, spec, **metadata)


def find(*objects: Plain, ref: ServiceRef = ALPHA, **environ: str) -> Service:
    result = service(world(*objects, **environ).mesh, ref)
    assert result is not None
    return result


def test_ports_of_a_service_are_limited() -> None:
    ports = ", ".join(f"{{name: http-{number}, port: {number}, protocol: TCP}}" for number in range(1, 1502))
    limited = find(kubernetes(f"{{ports: [{ports}]}}"))
    assert [port.number for port in limited.ports] == list(range(1, 1001))


# -- protocols ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "name", "transport", "app_protocol", "expected"),
    [
        (80, "http", "TCP", None, Protocol.HTTP),
        (80, "HTTP-web", "TCP", None, Protocol.HTTP),
        (80, "http2-x", "TCP", None, Protocol.HTTP2),
        (80, "grpc-web", "TCP", None, Protocol.GRPC_WEB),
        (80, "grpc-web-x", "TCP", None, Protocol.GRPC_WEB),
        (80, "grpc-x", "TCP", None, Protocol.GRPC),
        (80, "http_proxy", "TCP", None, Protocol.HTTP_PROXY),
        (80, "httpx", "TCP", None, Protocol.UNSUPPORTED),
        (80, "", "TCP", None, Protocol.UNSUPPORTED),
        (3306, "db", "TCP", None, Protocol.TCP),
        (27017, "", "TCP", None, Protocol.TCP),
        (25, "mail", "TCP", None, Protocol.TCP),
        (53, "names", "TCP", None, Protocol.TCP),
        (54, "", "TCP", None, Protocol.UNSUPPORTED),
        (3306, "http", "TCP", None, Protocol.HTTP),
        (3306, "db", "TCP", "mysql", Protocol.MYSQL),
        (80, "http", "TCP", "tcp", Protocol.TCP),
        (80, "http", "TCP", "kubernetes.io/h2c", Protocol.HTTP2),
        (80, "tcp", "TCP", "kubernetes.io/ws", Protocol.HTTP),
        (80, "tcp", "TCP", "kubernetes.io/wss", Protocol.HTTPS),
        (80, "http", "TCP", "example.com/own", Protocol.UNSUPPORTED),
        (53, "http", "UDP", "http", Protocol.UDP),
        (80, "hbone", "TCP", None, Protocol.UNSUPPORTED),
    ],
)
def test_protocol_of_a_port(
    number: int, name: str, transport: str, app_protocol: str | None, expected: Protocol
) -> None:
    assert port_protocol(number, name, transport, app_protocol) is expected


# -- Kubernetes Services -----------------------------------------------------------------------------------------------------


def test_cluster_ip() -> None:
    ports = "[{name: http, port: 80, targetPort: web}, {name: other, port: 81}]"
    alpha = find(
        kubernetes(f"{{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], selector: {{b: x, a: y}}, ports: {ports}}}")
    )
    assert (alpha.registry, alpha.resolution, alpha.addresses) == (
        Registry.KUBERNETES,
        Resolution.CLIENT_SIDE_LB,
        ("10.0.0.1",),
    )
    assert alpha.selector == (("a", "y"), ("b", "x"))
    assert [(p.number, p.target) for p in alpha.ports] == [(80, "web"), (81, 81)]
    assert alpha.export_to == PUBLIC


@pytest.mark.parametrize(
    ("spec", "resolution", "addresses"),
    [
        ("{clusterIP: None}", Resolution.PASSTHROUGH, ()),
        ("{}", Resolution.CLIENT_SIDE_LB, ()),
        (
            "{clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 'fd00::1']}",
            Resolution.CLIENT_SIDE_LB,
            ("10.0.0.1", "fd00::1"),
        ),
        ("{type: ExternalName, externalName: x.example.com}", Resolution.ALIAS, ()),
        ("{type: ExternalName, externalName: x.example.com, clusterIP: None}", Resolution.PASSTHROUGH, ()),
        (
            "{type: ClusterIP, externalName: x.example.com, clusterIP: 10.0.0.1}",
            Resolution.CLIENT_SIDE_LB,
            ("10.0.0.1",),
        ),
    ],
)
def test_resolution_and_addresses(spec: str, resolution: Resolution, addresses: tuple[str, ...]) -> None:
    alpha = find(kubernetes(spec))
    assert (alpha.resolution, alpha.addresses) == (resolution, addresses)
    assert alpha.mesh_external == (alpha.external_name != "")


def test_service_options() -> None:
    accounts = "{alpha.istio.io/canonical-serviceaccounts: 'spiffe://x/ns/y/sa/z, w', alpha.istio.io/kubernetes-serviceaccounts: other}"
    labels = "{istio.io/persistent-session: 'c:/p', istio.io/persistent-session-header: x-h}"
    alpha = find(
        kubernetes(
            "{publishNotReadyAddresses: true, internalTrafficPolicy: Local}", labels=labels, annotations=accounts
        )
    )
    assert alpha.publish_not_ready
    assert alpha.node_local
    assert (alpha.session_label, alpha.session_header_label) == ("c:/p", "x-h")
    assert alpha.service_accounts == ("spiffe://x/ns/y/sa/z", "w", "spiffe://cluster.local/ns/a/sa/other")


DISTRIBUTION = "networking.istio.io/traffic-distribution"


@pytest.mark.parametrize(
    ("spec", "annotation", "of_namespace", "expected"),
    [
        ("{trafficDistribution: PreferClose}", "", "", "PreferSameZone"),
        ("{trafficDistribution: PreferSameNode}", "PreferClose", "", "PreferSameNode"),
        ("{trafficDistribution: preferclose}", "", "", ""),
        ("{}", "preferSAMEzone", "PreferSameNode", "PreferSameZone"),
        ("{}", "anything", "PreferSameNode", ""),
        ("{}", "", "PreferSameNode", "PreferSameNode"),
        ("{}", "", "", ""),
    ],
)
def test_traffic_distribution(spec: str, annotation: str, of_namespace: str, expected: str) -> None:
    namespace = make("Namespace", "a", annotations=f"{{{DISTRIBUTION}: '{of_namespace}'}}")
    alpha = find(namespace, kubernetes(spec, annotations=f"{{{DISTRIBUTION}: '{annotation}'}}"))
    assert alpha.traffic_distribution == expected


# -- ServiceEntries ----------------------------------------------------------------------------------------------------------

X = ServiceRef("x.example.com", "a")


def test_service_entry() -> None:
    ports, addresses = (
        "[{number: 80, name: http, protocol: http, targetPort: 8080}]",
        "[10.0.0.1, 10.1.0.0/16, 10.2.0.3/32]",
    )
    external = find(
        entry(
            f"{{hosts: [x.example.com], ports: {ports}, resolution: STATIC, location: MESH_INTERNAL, addresses: {addresses},"
            " subjectAltNames: [san], endpoints: [{address: 10.9.9.9}]}",
            labels="{istio.io/persistent-session: c}",
            annotations="{istio.io/connect-strategy: race_first_tcp_connect}",
        ),
        ref=X,
    )
    assert (external.registry, external.resolution, external.mesh_external) == (
        Registry.EXTERNAL,
        Resolution.CLIENT_SIDE_LB,
        False,
    )
    assert external.addresses == ("10.0.0.1", "10.1.0.0/16", "10.2.0.3")
    assert [(p.number, p.protocol, p.target) for p in external.ports] == [(80, Protocol.HTTP, 8080)]
    assert (external.service_accounts, external.race_connect, external.session_label) == (("san",), True, "c")


def test_oldest_entry_owns_a_host_and_compatible_entries_add_ports() -> None:
    young = "[{number: 81, name: b, protocol: HTTP}, {number: 80, name: c, protocol: TCP}]"
    mesh = world(
        entry(f"{{hosts: [x.example.com], resolution: DNS, ports: {young}}}", "young", day=2),
        entry(
            "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: a, protocol: HTTP}]}", "old", day=1
        ),
        entry(
            "{hosts: [x.example.com], resolution: NONE, ports: [{number: 82, name: d, protocol: TCP}]}", "other", day=3
        ),
    ).mesh
    merged = service(mesh, X)
    assert merged is not None
    assert merged.source.name == "old"
    assert [(p.number, p.name) for p in merged.ports] == [(80, "a"), (81, "b")]
    assert [s.source.name for s in entry_services(mesh, X)] == ["old", "young", "other"]


@pytest.mark.parametrize("resolution", ["STATIC", "DNS"])
def test_names_of_all_entries_of_a_host_are_accepted(resolution: str) -> None:
    spec = "hosts: [x.example.com], resolution: {}, ports: [{{number: 80, name: http}}], subjectAltNames: [{}]"
    older = entry(f"{{{spec.format('STATIC', 'a, b')}}}", "older", day=1)
    younger = entry(f"{{{spec.format(resolution, 'c, a')}}}", "younger", day=2)
    assert find(younger, older, ref=ServiceRef("x.example.com", "a")).service_accounts == ("a", "b", "c")


def test_kubernetes_service_takes_precedence_over_entries() -> None:
    service_entry = entry(
        "{hosts: [alpha.a.svc.cluster.local], resolution: NONE, ports: [{number: 80, name: http}]}", day=1
    )
    mesh = world(kubernetes("{clusterIP: 10.0.0.1}", day=2), service_entry).mesh
    alpha = service(mesh, ALPHA)
    assert alpha is not None
    assert alpha.registry is Registry.KUBERNETES
    assert service_refs(mesh) == (ALPHA,)


def test_canonical_service_labels_when_enabled() -> None:
    plain = entry(
        "{hosts: [x.example.com], resolution: DNS, ports: [{number: 80, name: http}]}", labels="{version: v3}"
    )
    assert dict(find(plain, ref=X, LABEL_CANONICAL_SERVICES_FOR_MESH_EXTERNAL_SERVICE_ENTRIES="true").labels) == {
        "version": "v3",
        "service.istio.io/canonical-name": "ext",
        "service.istio.io/canonical-revision": "v3",
    }


# -- visibility --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("export_to", "defaults", "expected"),
    [
        ((), (), PUBLIC),
        (("*",), (".",), PUBLIC),
        ((), (".",), {"a"}),
        ((".", "b"), (), {"a", "b"}),
        (("~",), (), set()),
        (("~", "b"), (), set()),
        (("~", "*"), (), PUBLIC),
    ],
)
def test_export_to(export_to: tuple[str, ...], defaults: tuple[str, ...], expected: set[str]) -> None:
    assert resolve_export_to(export_to, defaults, "a") == expected


LIMITS = ServiceEntryVisibility(
    default_visibility="PUBLIC",
    apply_to_sidecars=True,
    policies=(
        Policy("NAMESPACE", (MatchRule(LabelSelector({"trust": "low"})),)),
        Policy("NONE", (MatchRule(LabelSelector({"kubernetes.io/metadata.name": "dark"})),)),
    ),
)


@pytest.mark.parametrize(
    ("exported", "namespace", "labels", "expected"),
    [
        (PUBLIC, "a", {}, PUBLIC),
        (PUBLIC, "a", {"trust": "low"}, {"a"}),
        (frozenset({"b"}), "a", {"trust": "low"}, set()),
        (frozenset({"a", "b"}), "a", {"trust": "low"}, {"a"}),
        (PUBLIC, "dark", {}, set()),
    ],
)
def test_visibility_limits_of_service_entries(
    exported: frozenset[str], namespace: str, labels: dict[str, str], expected: set[str]
) -> None:
    assert limit_export(exported, LIMITS, namespace, labels) == expected


def test_visibility_policy_without_rules_matches_everything() -> None:
    assert entry_visibility(ServiceEntryVisibility(policies=(Policy("NONE"),)), {}) == "NONE"


@pytest.mark.parametrize(
    ("operator", "values", "labels", "expected"),
    [
        ("In", ("x",), {"k": "x"}, True),
        ("In", ("x",), {}, False),
        ("NotIn", ("x",), {}, True),
        ("NotIn", ("x",), {"k": "x"}, False),
        ("Exists", (), {"k": ""}, True),
        ("DoesNotExist", (), {"k": ""}, False),
        ("Maybe", (), {"k": ""}, False),
    ],
)
def test_label_selectors(operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool) -> None:
    assert selects(LabelSelector({}, (LabelSelectorRequirement("k", operator, values),)), labels) is expected


def exported(name: str, to: str, day: int) -> Plain:
    return kubernetes("{}", name, day=day, annotations=f'{{networking.istio.io/exportTo: "{to}"}}')


def test_service_lists_by_visibility() -> None:
    declared = [
        exported("new", "*", 3),
        exported("old", "*", 1),
        exported("own", ".", 2),
        exported("for-b", "b,c", 4),
        exported("hidden", "~", 5),
    ]
    external = entry(
        "{hosts: [x.example.com], resolution: NONE, ports: [{number: 80, name: http}]}", namespace="b", day=2
    )
    mesh = world(*declared, external).mesh
    old, own, new, for_b, hidden = (
        ServiceRef(f"{n}.a.svc.cluster.local", "a") for n in ("old", "own", "new", "for-b", "hidden")
    )
    x = ServiceRef("x.example.com", "b")
    assert refs_in_namespace(mesh, "a") == (old, own, new, for_b, hidden)
    assert refs_in_namespace(mesh, "b") == (x,)
    assert set(service_refs(mesh)) == {old, own, new, for_b, hidden, x}
    assert visible_refs(mesh, "a") == (own, old, x, new)
    assert visible_refs(mesh, "b") == (for_b, old, x, new)
    assert visible_refs(mesh, "z") == (old, x, new)
    assert visible_refs(mesh, "z") is visible_refs(mesh, "y")
    assert [is_visible(mesh, r, "b") for r in (own, for_b, hidden, x)] == [False, True, False, True]
    assert refs_by_hostname(mesh, "x.example.com") == (x,)
    assert refs_by_hostname(mesh, own.hostname) == (own,)
    assert refs_by_hostname(mesh, "nothing.a.svc.cluster.local") == ()


def test_default_export_to_of_the_mesh() -> None:
    mesh = world(kubernetes(), mesh_config="defaultServiceExportTo: ['.']").mesh
    assert (is_visible(mesh, ALPHA, "a"), is_visible(mesh, ALPHA, "b")) == (True, False)


def test_port_edit_does_not_recompute_visible_services() -> None:
    harness = world(
        kubernetes("{ports: [{name: http, port: 80}]}"), kubernetes("{ports: [{name: http, port: 80}]}", "beta")
    )
    before = harness.mesh.watch(visible_refs, "z").value
    derivations: list[str] = []
    harness.mesh.on_run = lambda node: derivations.append(str(node.fn))
    harness.set(rows_of([kubernetes("{ports: [{name: http, port: 81}]}")]))
    assert visible_refs(harness.mesh, "z") is before
    assert sorted(derivations) == ["Service", "service", "service_summaries", "service_summary"]


# -- host names of ServiceEntries --------------------------------------------------------------------------------------------


def test_service_entry_hosts_are_case_insensitive() -> None:
    spec = "{{hosts: [{host}], resolution: STATIC, ports: [{{number: 80, name: http, protocol: HTTP}}], endpoints: [{{address: {ip}}}]}}"
    upper = entry(spec.format(host="API.Example.COM", ip="10.1.0.1"))
    upper["status"] = {"addresses": [{"value": "240.240.3.3", "host": "API.Example.COM"}]}
    mesh = world(upper, entry(spec.format(host="api.example.com", ip="10.1.0.2"), "again", day=2)).mesh
    ref = ServiceRef("api.example.com", "a")
    assert service_refs(mesh) == refs_by_hostname(mesh, "api.example.com") == (ref,)
    external = service(mesh, ref)
    assert external is not None
    assert (external.hostname, external.auto_addresses) == ("api.example.com", ("240.240.3.3",))
    assert [e.addresses for e in endpoints(mesh, ref, 80)] == [("10.1.0.1",), ("10.1.0.2",)]
    claim = make("ServiceEntry", "claim", spec.format(host="Alpha.A.svc.cluster.local", ip="10.1.0.3"))
    both = world(kubernetes("{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"), claim).mesh
    assert [e.addresses for e in endpoints(both, ALPHA, 80)] == [("10.1.0.3",)]

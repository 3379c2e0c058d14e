"""Gateways as waypoints, and which services and workloads use which of them."""

from __future__ import annotations

import pytest

from pilot.config.object import ObjectKey, RegistryKey
from pilot.mesh.ambient.attachments import (
    namespace_attachment,
    pods_of_waypoint,
    service_attachment,
    services_of_waypoint,
    subject_of,
    workload_attachment,
)
from pilot.mesh.ambient.waypoints import parse_binding, waypoint, waypoint_accounts
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.waypoint import ApplicationTunnel, Waypoint, WaypointAddress, WaypointAttachment
from pilot.mesh.status.gateway_status import gateway_status
from testing.mesh.objects import Plain, at, endpoint_slice, make
from testing.mesh.world import World, rows_of

AMBIENT = {"PILOT_ENABLE_AMBIENT": "true"}
MESH_PORT = "{name: mesh, port: 15008, protocol: HBONE%s}"
W = ObjectKey("a", "w")


def gateway(
    name: str = "w", namespace: str = "a", labels: str = "{}", listener: str = MESH_PORT % "", annotations: str = "{}"
) -> tuple[Plain, ...]:
    """A waypoint that runs: its Gateway, Service, and one endpoint."""
    return (
        make(
            "Gateway",
            name,
            f"{{gatewayClassName: istio-waypoint, listeners: [{listener}]}}",
            namespace,
            apiVersion="gateway.networking.k8s.io/v1",
            labels=labels,
            annotations=annotations,
        ),
        make("Service", name, "{clusterIP: 10.96.0.9, ports: [{name: mesh, port: 15008}]}", namespace),
        endpoint_slice(name, at("10.1.0.9"), namespace=namespace, ports="[{name: mesh, port: 15008}]"),
    )


def service(labels: str, name: str = "s", namespace: str = "a", annotations: str = "{}") -> Plain:
    return make(
        "Service",
        name,
        "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}",
        namespace,
        labels=labels,
        annotations=annotations,
    )


def ref(name: str = "s", namespace: str = "a") -> ServiceRef:
    return ServiceRef(f"{name}.{namespace}.svc.cluster.local", namespace)


def world(*objects: Plain, **environ: str) -> World:
    made = World(environ={**AMBIENT, **environ})
    made.apply_objects(*objects)
    return made


def attachment(*objects: Plain) -> WaypointAttachment:
    return service_attachment(world(*objects).mesh, ref())


def test_a_gateway_is_a_waypoint_when_its_service_has_endpoints() -> None:
    objects = gateway()
    made = world(*objects[:2])
    assert waypoint(made.mesh, W) is None
    made.apply_objects(objects[2])
    assert waypoint(made.mesh, W) == Waypoint(
        key=W, address=WaypointAddress(hostname="w.a.svc.cluster.local", namespace="a")
    )
    status = gateway_status(made.mesh, W)
    assert status is not None
    assert {c.type: c.status for c in status.conditions} == {"Accepted": True, "Programmed": True, "ResolvedRefs": True}
    assert status.addresses == ("10.96.0.9", "w.a.svc.cluster.local")


def test_a_waypoint_without_pods_stays_one_by_its_status() -> None:
    row = gateway()[0] | {
        "status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.9"}, {"type": "Hostname", "value": "w.a.svc"}]}
    }
    found = waypoint(world(row).mesh, W)
    assert found is not None
    assert found.address == WaypointAddress(hostname="w.a.svc", namespace="a")


def test_a_gateway_of_an_unknown_class_is_a_waypoint_by_its_status() -> None:
    row = make(
        "Gateway", "w", "{gatewayClassName: other, listeners: []}", "a", apiVersion="gateway.networking.k8s.io/v1"
    )
    made = world(row, make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"))
    assert waypoint(made.mesh, W) is None
    made.apply_objects(row | {"status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.9"}]}})
    found = waypoint(made.mesh, W)
    assert found is not None
    assert found.address == WaypointAddress(network="east", ip="10.96.0.9")


def test_there_are_no_waypoints_in_a_mesh_that_is_not_ambient() -> None:
    made = World()
    made.apply_objects(*gateway(), service("{istio.io/use-waypoint: w}"))
    assert waypoint(made.mesh, W) is None
    assert gateway_status(made.mesh, W) is None
    assert service_attachment(made.mesh, ref()) == WaypointAttachment()


def test_a_listener_of_a_waypoint_that_is_not_for_hbone_is_told() -> None:
    status = gateway_status(world(*gateway(listener="{name: mesh, port: 1234, protocol: HTTP}")).mesh, W)
    assert status is not None
    assert [(c.reason, c.message) for c in status.listeners[0].conditions if c.type == "Accepted"] == [
        ("UnsupportedProtocol", 'Expected a single listener on port 15008 with protocol "HBONE"')
    ]
    assert [c.status for c in status.conditions if c.type == "Accepted"] == [True]


# -- services --------------------------------------------------------------------------------------------------------------


def test_a_service_names_its_waypoint() -> None:
    assert attachment(*gateway(), service("{istio.io/use-waypoint: w}")) == WaypointAttachment(W)


def test_a_service_comes_before_its_namespace() -> None:
    labelled = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    assert attachment(*gateway(), labelled, service("{}")) == WaypointAttachment(W)
    assert attachment(*gateway(), labelled, service("{istio.io/use-waypoint: none}")) == WaypointAttachment()
    other = attachment(*gateway(), labelled, service("{istio.io/use-waypoint: x}"))
    assert other.waypoint is None
    assert other.fault is not None
    assert other.fault.reason == "WaypointIsNotReady"


@pytest.mark.parametrize(
    ("listener", "labels", "reason"),
    [
        (MESH_PORT % "", "{}", "AttachmentDenied"),
        (MESH_PORT % ", allowedRoutes: {namespaces: {from: Same}}", "{}", "AttachmentDenied"),
        (MESH_PORT % ", allowedRoutes: {namespaces: {from: All}}", "{}", ""),
        (
            MESH_PORT % ", allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: x}}}}",
            "{}",
            "AttachmentDenied",
        ),
        (
            MESH_PORT % ", allowedRoutes: {namespaces: {from: Selector, selector: {matchLabels: {team: x}}}}",
            "{team: x}",
            "",
        ),
    ],
)
def test_a_waypoint_of_another_namespace_must_allow_it(listener: str, labels: str, reason: str) -> None:
    named = service("{istio.io/use-waypoint: w, istio.io/use-waypoint-namespace: b}")
    found = attachment(*gateway(namespace="b", listener=listener), make("Namespace", "a", labels=labels), named)
    assert (found.fault.reason if found.fault else "") == reason
    assert found.waypoint == (None if reason else ObjectKey("b", "w"))


@pytest.mark.parametrize(
    ("labels", "service_reason", "workload_reason"),
    [
        ("{}", "", "UnsupportedTrafficType"),
        ("{istio.io/waypoint-for: service}", "", "UnsupportedTrafficType"),
        ("{istio.io/waypoint-for: workload}", "UnsupportedTrafficType", ""),
        ("{istio.io/waypoint-for: all}", "", ""),
        ("{istio.io/waypoint-for: none}", "UnsupportedTrafficType", "UnsupportedTrafficType"),
    ],
)
def test_a_waypoint_is_for_services_or_workloads(labels: str, service_reason: str, workload_reason: str) -> None:
    made = world(*gateway(labels=labels), service("{istio.io/use-waypoint: w}"))
    for_service = service_attachment(made.mesh, ref())
    for_workload = workload_attachment(made.mesh, subject_of("a", {"istio.io/use-waypoint": "w", "app": "x"}))
    assert (for_service.fault.reason if for_service.fault else "") == service_reason
    assert (for_workload.fault.reason if for_workload.fault else "") == workload_reason


def test_the_class_says_what_a_waypoint_is_for_where_the_gateway_does_not() -> None:
    spec = "{controllerName: istio.io/mesh-controller}"
    of_class = make(
        "GatewayClass",
        "istio-waypoint",
        spec,
        "",
        apiVersion="gateway.networking.k8s.io/v1",
        labels="{istio.io/waypoint-for: workload}",
    )
    found = waypoint(world(*gateway(), of_class).mesh, W)
    assert found is not None
    assert found.traffic == "workload"
    found = waypoint(world(*gateway(labels="{istio.io/waypoint-for: all}"), of_class).mesh, W)
    assert found is not None
    assert found.traffic == "all"


@pytest.mark.parametrize(
    ("own", "of_class", "port"), [("PROXY/1", "PROXY/2", 1), ("PROXY/1", "", 1), ("", "PROXY/2", 2)]
)
def test_the_class_says_how_a_waypoint_is_reached_where_the_gateway_does_not(
    own: str, of_class: str, port: int
) -> None:
    name = "ambient.istio.io/waypoint-inbound-binding"
    known = make(
        "GatewayClass",
        "istio-waypoint",
        "{controllerName: istio.io/mesh-controller}",
        "",
        apiVersion="gateway.networking.k8s.io/v1",
        annotations=f"{{{name}: {of_class}}}" if of_class else "{}",
    )
    found = waypoint(world(*gateway(annotations=f"{{{name}: {own}}}" if own else "{}"), known).mesh, W)
    assert found is not None
    assert found.tunnel == ApplicationTunnel("PROXY", port)


def test_what_a_waypoint_runs_on_uses_none() -> None:
    labelled = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    managed = service("{gateway.istio.io/managed: istio.io-mesh-controller}")
    made = world(*gateway(labels="{istio.io/waypoint-for: all}"), labelled, managed)
    assert service_attachment(made.mesh, ref()) == WaypointAttachment()
    assert (
        workload_attachment(made.mesh, subject_of("a", {"gateway.networking.k8s.io/gateway-name": "w"}))
        == WaypointAttachment()
    )
    assert workload_attachment(made.mesh, subject_of("a", {})) == WaypointAttachment(W)


def test_a_namespaces_waypoint_for_services_is_no_fault_of_its_workloads() -> None:
    made = world(*gateway(), make("Namespace", "a", labels="{istio.io/use-waypoint: w}"))
    assert workload_attachment(made.mesh, subject_of("a", {})) == WaypointAttachment()
    assert namespace_attachment(made.mesh, "a") == WaypointAttachment(W)


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ("", "{istio.io/use-waypoint-canary-weight: '25'}", (ObjectKey("a", "next"), 25, "")),
        ("", "{}", (ObjectKey("a", "next"), 0, "")),
        ("", "{istio.io/use-waypoint-canary-weight: '101'}", (None, 0, "CanaryInvalidWeight")),
        ("", "{istio.io/use-waypoint-canary-weight: few}", (None, 0, "CanaryInvalidWeight")),
        (", istio.io/use-waypoint-canary: w", "{}", (None, 0, "CanarySameAsPrimary")),
        (", istio.io/use-waypoint-canary: absent", "{}", (None, 0, "WaypointIsNotReady")),
        (", istio.io/use-waypoint-canary: none", "{}", (None, 0, "")),
    ],
)
def test_a_canary_of_a_waypoint(labels: str, annotations: str, expected: tuple[ObjectKey | None, int, str]) -> None:
    named = f"{{istio.io/use-waypoint: w{labels or ', istio.io/use-waypoint-canary: next'}}}"
    found = attachment(*gateway(), *gateway("next"), service(named, annotations=annotations))
    assert (found.canary, found.weight, found.fault.reason if found.fault else "") == expected
    assert found.waypoint == W


def test_a_canary_is_inherited_with_the_waypoint() -> None:
    labels = "{istio.io/use-waypoint: w, istio.io/use-waypoint-canary: next}"
    labelled = make("Namespace", "a", labels=labels, annotations="{istio.io/use-waypoint-canary-weight: '5'}")
    assert attachment(*gateway(), *gateway("next"), labelled, service("{}")) == WaypointAttachment(
        W, canary=ObjectKey("a", "next"), weight=5
    )
    assert attachment(
        *gateway(), *gateway("next"), labelled, service("{istio.io/use-waypoint: w}")
    ) == WaypointAttachment(W)


@pytest.mark.parametrize(
    ("of_service", "of_namespace", "expected"),
    [
        ("{istio.io/use-waypoint: w}", "{}", None),
        ("{istio.io/use-waypoint: w, istio.io/ingress-use-waypoint: 'true'}", "{}", True),
        (
            "{istio.io/use-waypoint: w, istio.io/ingress-use-waypoint: 'false'}",
            "{istio.io/ingress-use-waypoint: 'true'}",
            False,
        ),
        ("{istio.io/use-waypoint: w}", "{istio.io/ingress-use-waypoint: 'true'}", True),
        ("{istio.io/use-waypoint: w, istio.io/ingress-use-waypoint: maybe}", "{}", False),
    ],
)
def test_gateways_at_the_edge_use_the_waypoint_where_a_label_says_so(
    of_service: str, of_namespace: str, expected: bool | None
) -> None:
    assert attachment(*gateway(), make("Namespace", "a", labels=of_namespace), service(of_service)).ingress is expected


def test_an_entry_of_one_namespace_uses_no_waypoint_of_another() -> None:
    mesh = "serviceEntryVisibility: {defaultVisibility: NAMESPACE}"
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}"
    labels = "{istio.io/use-waypoint: w, istio.io/use-waypoint-namespace: b}"
    made = World(mesh, AMBIENT)
    open_to_all = gateway(namespace="b", listener=MESH_PORT % ", allowedRoutes: {namespaces: {from: All}}")
    made.apply_objects(*open_to_all, make("ServiceEntry", "e", spec, "a", labels=labels))
    found = service_attachment(made.mesh, ServiceRef("x.example", "a"))
    assert found.fault is not None
    assert found.fault.reason == "CrossNamespaceWaypointForbidden"


# -- the other way round ---------------------------------------------------------------------------------------------------


def pod(name: str, labels: str, spec: str = "{serviceAccountName: sa}", namespace: str = "a") -> Plain:
    return make("Pod", name, spec, namespace, labels=labels) | {"status": {"podIP": "10.1.0.1", "phase": "Running"}}


def test_what_uses_a_waypoint() -> None:
    made = world(
        *gateway(labels="{istio.io/waypoint-for: all}"),
        *gateway("next"),
        service("{istio.io/use-waypoint: w}"),
        service("{istio.io/use-waypoint: next, istio.io/use-waypoint-canary: w}", "t"),
        service("{}", "u"),
        pod("p", "{istio.io/use-waypoint: w}"),
        pod("q", "{}"),
    )
    assert services_of_waypoint(made.mesh, W) == (ref("s"), ref("t"))
    assert services_of_waypoint(made.mesh, ObjectKey("a", "next")) == (ref("t"),)
    assert pods_of_waypoint(made.mesh, W) == (RegistryKey("Kubernetes", "a", "p"),)
    made.set(dict.fromkeys(rows_of([service("{}")])))
    assert services_of_waypoint(made.mesh, W) == (ref("t"),)


def test_the_accounts_of_a_waypoint_are_those_of_its_pods() -> None:
    label = "{gateway.networking.k8s.io/gateway-name: w}"
    made = world(
        *gateway(),
        pod("p", label),
        pod("q", label, "{serviceAccountName: other}"),
        pod("r", "{}", "{serviceAccountName: third}"),
    )
    assert waypoint_accounts(made.mesh, W) == ("other", "sa")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("PROXY", ApplicationTunnel("PROXY")),
        ("PROXY/15088", ApplicationTunnel("PROXY", 15088)),
        ("NONE", ApplicationTunnel("NONE")),
        ("PROXY/x", None),
        ("HTTP", None),
        ("PROXY/1/2", None),
    ],
)
def test_the_binding_of_a_waypoint(text: str, expected: ApplicationTunnel | None) -> None:
    assert parse_binding(text) == expected


def test_nothing_of_waypoints_is_derived_for_a_mesh_that_is_not_ambient() -> None:
    made = World()
    made.apply_objects(*gateway(), service("{istio.io/use-waypoint: w}"))
    service_attachment(made.mesh, ref())
    assert not any(node.fn.__name__ == "waypoint" for node in made.mesh.live_nodes())

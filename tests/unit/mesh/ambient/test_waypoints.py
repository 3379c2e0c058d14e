"""Waypoint Gateways, and the services and workloads attached to them."""

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
    """A running waypoint: its Gateway, Service and one endpoint."""
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
    harness = World(environ={**AMBIENT, **environ})
    harness.apply_objects(*objects)
    return harness


def attachment(*objects: Plain) -> WaypointAttachment:
    return service_attachment(world(*objects).mesh, ref())


def test_gateway_is_a_waypoint_once_its_service_has_endpoints() -> None:
    objects = gateway()
    harness = world(*objects[:2])
    assert waypoint(harness.mesh, W) is None
    harness.apply_objects(objects[2])
    assert waypoint(harness.mesh, W) == Waypoint(
        key=W, address=WaypointAddress(hostname="w.a.svc.cluster.local", namespace="a")
    )
    status = gateway_status(harness.mesh, W)
    assert status is not None
    assert {c.type: c.status for c in status.conditions} == {"Accepted": True, "Programmed": True, "ResolvedRefs": True}
    assert status.addresses == ("10.96.0.9", "w.a.svc.cluster.local")


def test_waypoint_without_pods_uses_its_status_address() -> None:
    row = gateway()[0] | {
        "status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.9"}, {"type": "Hostname", "value": "w.a.svc"}]}
    }
    result = waypoint(world(row).mesh, W)
    assert result is not None
    assert result.address == WaypointAddress(hostname="w.a.svc", namespace="a")


def test_gateway_of_an_unknown_class_is_a_waypoint_by_its_status() -> None:
    row = make(
        "Gateway", "w", "{gatewayClassName: other, listeners: []}", "a", apiVersion="gateway.networking.k8s.io/v1"
    )
    harness = world(row, make("Namespace", "istio-system", labels="{topology.istio.io/network: east}"))
    assert waypoint(harness.mesh, W) is None
    harness.apply_objects(row | {"status": {"addresses": [{"type": "IPAddress", "value": "10.96.0.9"}]}})
    result = waypoint(harness.mesh, W)
    assert result is not None
    assert result.address == WaypointAddress(network="east", ip="10.96.0.9")


def test_no_waypoints_outside_ambient_mode() -> None:
    harness = World()
    harness.apply_objects(*gateway(), service("{istio.io/use-waypoint: w}"))
    assert waypoint(harness.mesh, W) is None
    assert gateway_status(harness.mesh, W) is None
    assert service_attachment(harness.mesh, ref()) == WaypointAttachment()


def test_waypoint_listener_without_hbone_is_reported() -> None:
    status = gateway_status(world(*gateway(listener="{name: mesh, port: 1234, protocol: HTTP}")).mesh, W)
    assert status is not None
    assert [(c.reason, c.message) for c in status.listeners[0].conditions if c.type == "Accepted"] == [
        ("UnsupportedProtocol", 'Expected a single listener on port 15008 with protocol "HBONE"')
    ]
    assert [c.status for c in status.conditions if c.type == "Accepted"] == [True]


# -- services --------------------------------------------------------------------------------------------------------------


def test_service_label_selects_the_waypoint() -> None:
    assert attachment(*gateway(), service("{istio.io/use-waypoint: w}")) == WaypointAttachment(W)


def test_service_label_overrides_the_namespace() -> None:
    namespace = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    assert attachment(*gateway(), namespace, service("{}")) == WaypointAttachment(W)
    assert attachment(*gateway(), namespace, service("{istio.io/use-waypoint: none}")) == WaypointAttachment()
    missing_waypoint = attachment(*gateway(), namespace, service("{istio.io/use-waypoint: x}"))
    assert missing_waypoint.waypoint is None
    assert missing_waypoint.fault is not None
    assert missing_waypoint.fault.reason == "WaypointIsNotReady"


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
def test_cross_namespace_waypoint_requires_allowed_routes(listener: str, labels: str, reason: str) -> None:
    consumer = service("{istio.io/use-waypoint: w, istio.io/use-waypoint-namespace: b}")
    result = attachment(*gateway(namespace="b", listener=listener), make("Namespace", "a", labels=labels), consumer)
    assert (result.fault.reason if result.fault else "") == reason
    assert result.waypoint == (None if reason else ObjectKey("b", "w"))


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
def test_waypoint_traffic_type(labels: str, service_reason: str, workload_reason: str) -> None:
    harness = world(*gateway(labels=labels), service("{istio.io/use-waypoint: w}"))
    for_service = service_attachment(harness.mesh, ref())
    for_workload = workload_attachment(harness.mesh, subject_of("a", {"istio.io/use-waypoint": "w", "app": "x"}))
    assert (for_service.fault.reason if for_service.fault else "") == service_reason
    assert (for_workload.fault.reason if for_workload.fault else "") == workload_reason


def test_traffic_type_defaults_to_the_class_label() -> None:
    spec = "{controllerName: istio.io/mesh-controller}"
    of_class = make(
        "GatewayClass",
        "istio-waypoint",
        spec,
        "",
        apiVersion="gateway.networking.k8s.io/v1",
        labels="{istio.io/waypoint-for: workload}",
    )
    result = waypoint(world(*gateway(), of_class).mesh, W)
    assert result is not None
    assert result.traffic == "workload"
    result = waypoint(world(*gateway(labels="{istio.io/waypoint-for: all}"), of_class).mesh, W)
    assert result is not None
    assert result.traffic == "all"


@pytest.mark.parametrize(
    ("of_gateway", "of_class", "port"), [("PROXY/1", "PROXY/2", 1), ("PROXY/1", "", 1), ("", "PROXY/2", 2)]
)
def test_inbound_binding_defaults_to_the_class_annotation(of_gateway: str, of_class: str, port: int) -> None:
    name = "ambient.istio.io/waypoint-inbound-binding"
    gateway_class = make(
        "GatewayClass",
        "istio-waypoint",
        "{controllerName: istio.io/mesh-controller}",
        "",
        apiVersion="gateway.networking.k8s.io/v1",
        annotations=f"{{{name}: {of_class}}}" if of_class else "{}",
    )
    result = waypoint(
        world(*gateway(annotations=f"{{{name}: {of_gateway}}}" if of_gateway else "{}"), gateway_class).mesh, W
    )
    assert result is not None
    assert result.tunnel == ApplicationTunnel("PROXY", port)


def test_waypoint_itself_has_no_waypoint() -> None:
    namespace = make("Namespace", "a", labels="{istio.io/use-waypoint: w}")
    managed = service("{gateway.istio.io/managed: istio.io-mesh-controller}")
    harness = world(*gateway(labels="{istio.io/waypoint-for: all}"), namespace, managed)
    assert service_attachment(harness.mesh, ref()) == WaypointAttachment()
    assert (
        workload_attachment(harness.mesh, subject_of("a", {"gateway.networking.k8s.io/gateway-name": "w"}))
        == WaypointAttachment()
    )
    assert workload_attachment(harness.mesh, subject_of("a", {})) == WaypointAttachment(W)


def test_namespace_waypoint_for_services_is_no_error_for_workloads() -> None:
    harness = world(*gateway(), make("Namespace", "a", labels="{istio.io/use-waypoint: w}"))
    assert workload_attachment(harness.mesh, subject_of("a", {})) == WaypointAttachment()
    assert namespace_attachment(harness.mesh, "a") == WaypointAttachment(W)


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
def test_canary_waypoint(labels: str, annotations: str, expected: tuple[ObjectKey | None, int, str]) -> None:
    consumer = f"{{istio.io/use-waypoint: w{labels or ', istio.io/use-waypoint-canary: next'}}}"
    result = attachment(*gateway(), *gateway("next"), service(consumer, annotations=annotations))
    assert (result.canary, result.weight, result.fault.reason if result.fault else "") == expected
    assert result.waypoint == W


def test_canary_is_inherited_with_the_waypoint() -> None:
    labels = "{istio.io/use-waypoint: w, istio.io/use-waypoint-canary: next}"
    namespace = make("Namespace", "a", labels=labels, annotations="{istio.io/use-waypoint-canary-weight: '5'}")
    assert attachment(*gateway(), *gateway("next"), namespace, service("{}")) == WaypointAttachment(
        W, canary=ObjectKey("a", "next"), weight=5
    )
    assert attachment(
        *gateway(), *gateway("next"), namespace, service("{istio.io/use-waypoint: w}")
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
def test_ingress_use_waypoint_label(of_service: str, of_namespace: str, expected: bool | None) -> None:
    assert attachment(*gateway(), make("Namespace", "a", labels=of_namespace), service(of_service)).ingress is expected


def test_namespace_visible_entry_rejects_a_cross_namespace_waypoint() -> None:
    mesh = "serviceEntryVisibility: {defaultVisibility: NAMESPACE}"
    spec = "{hosts: [x.example], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC}"
    labels = "{istio.io/use-waypoint: w, istio.io/use-waypoint-namespace: b}"
    harness = World(mesh, AMBIENT)
    open_to_all = gateway(namespace="b", listener=MESH_PORT % ", allowedRoutes: {namespaces: {from: All}}")
    harness.apply_objects(*open_to_all, make("ServiceEntry", "e", spec, "a", labels=labels))
    result = service_attachment(harness.mesh, ServiceRef("x.example", "a"))
    assert result.fault is not None
    assert result.fault.reason == "CrossNamespaceWaypointForbidden"


# -- clients of a waypoint -------------------------------------------------------------------------------------------------


def pod(name: str, labels: str, spec: str = "{serviceAccountName: sa}", namespace: str = "a") -> Plain:
    return make("Pod", name, spec, namespace, labels=labels) | {"status": {"podIP": "10.1.0.1", "phase": "Running"}}


def test_services_and_pods_of_a_waypoint() -> None:
    harness = world(
        *gateway(labels="{istio.io/waypoint-for: all}"),
        *gateway("next"),
        service("{istio.io/use-waypoint: w}"),
        service("{istio.io/use-waypoint: next, istio.io/use-waypoint-canary: w}", "t"),
        service("{}", "u"),
        pod("p", "{istio.io/use-waypoint: w}"),
        pod("q", "{}"),
    )
    assert services_of_waypoint(harness.mesh, W) == (ref("s"), ref("t"))
    assert services_of_waypoint(harness.mesh, ObjectKey("a", "next")) == (ref("t"),)
    assert pods_of_waypoint(harness.mesh, W) == (RegistryKey("Kubernetes", "a", "p"),)
    harness.set(dict.fromkeys(rows_of([service("{}")])))
    assert services_of_waypoint(harness.mesh, W) == (ref("t"),)


def test_waypoint_accounts_are_those_of_its_pods() -> None:
    label = "{gateway.networking.k8s.io/gateway-name: w}"
    harness = world(
        *gateway(),
        pod("p", label),
        pod("q", label, "{serviceAccountName: other}"),
        pod("r", "{}", "{serviceAccountName: third}"),
    )
    assert waypoint_accounts(harness.mesh, W) == ("other", "sa")


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
def test_parse_binding(text: str, expected: ApplicationTunnel | None) -> None:
    assert parse_binding(text) == expected


def test_no_waypoints_are_derived_outside_ambient_mode() -> None:
    harness = World()
    harness.apply_objects(*gateway(), service("{istio.io/use-waypoint: w}"))
    service_attachment(harness.mesh, ref())
    assert not any(node.fn.__name__ == "waypoint" for node in harness.mesh.live_nodes())

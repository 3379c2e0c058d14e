"""Status conditions of services, workloads and policies in an ambient mesh."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pilot.config.group_kind import NETWORKING, SECURITY, GroupKind
from pilot.config.problem import ObjectRef
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.status.object_status import ObjectConditions, object_status, objects_with_status
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.clients.ztunnel import AMBIENT, ambient
from testing.control_planes.kube_plane import running
from testing.kube.kube_access import until, write_kubeconfig
from testing.mesh.objects import Plain, make
from testing.mesh.world import World

SERVICE, POLICY = GroupKind("", "Service"), GroupKind(SECURITY, "AuthorizationPolicy")
ENTRY, WORKLOAD = GroupKind(NETWORKING, "ServiceEntry"), GroupKind(NETWORKING, "WorkloadEntry")


def gateway(namespace: str = "a", labels: str = "{}", name: str = "w") -> Plain:
    status = {"addresses": [{"type": "Hostname", "value": f"{name}.svc"}]}
    return make(
        "Gateway",
        name,
        "{gatewayClassName: other, listeners: []}",
        namespace,
        apiVersion="gateway.networking.k8s.io/v1",
        labels=labels,
        status=status,
    )


def service(labels: str) -> Plain:
    return make("Service", "s", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", labels=labels)


def entry(labels: str = "{}", host: str = "x.example", **more: Any) -> Plain:
    resolution = "DYNAMIC_DNS" if "*" in host else "DNS"
    spec = f"{{hosts: ['{host}'], ports: [{{number: 80, name: http, protocol: HTTP}}], resolution: {resolution}}}"
    return make("ServiceEntry", "e", spec, labels=labels, **more)


def conditions_of(
    kind: GroupKind, name: str, *objects: Plain, mesh_config: str = "", namespace: str = "a"
) -> list[StatusCondition]:
    status = object_status(ambient(*objects, mesh_config=mesh_config).mesh, ObjectRef(kind, namespace, name))
    assert isinstance(status, ObjectConditions)
    return list(status.conditions)


USE_WAYPOINT = "{istio.io/use-waypoint: w%s}"
ATTACHED = "Successfully attached to waypoint a/w"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("{}", []),
        (USE_WAYPOINT % "", [(True, "WaypointAccepted", ATTACHED)]),
        (
            USE_WAYPOINT % ", istio.io/ingress-use-waypoint: 'true'",
            [(True, "WaypointAccepted", f"{ATTACHED}. Ingress traffic will traverse the waypoint")],
        ),
        (
            USE_WAYPOINT % ", istio.io/use-waypoint-canary: x",
            [(True, "WaypointAccepted", f'{ATTACHED}. Canary waypoint not attached: waypoint "a/x" is not ready')],
        ),
        ("{istio.io/use-waypoint: x}", [(False, "WaypointIsNotReady", 'waypoint "a/x" is not ready')]),
        (
            "{istio.io/use-waypoint: v, istio.io/use-waypoint-namespace: b}",
            [(False, "AttachmentDenied", 'we are not permitted to attach to waypoint "b/v" (missing allowedRoutes?)')],
        ),
    ],
)
def test_service_waypoint_condition(labels: str, expected: list[tuple[bool, str, str]]) -> None:
    actual = conditions_of(SERVICE, "s", gateway(), gateway("b", name="v"), service(labels))
    assert [c[1:] for c in actual] == expected
    assert {c.type for c in actual} <= {"istio.io/WaypointBound"}


def test_service_entry_reports_a_missing_waypoint() -> None:
    assert conditions_of(ENTRY, "e", entry()) == []
    assert [(c.type, c.reason) for c in conditions_of(ENTRY, "e", entry(host="*.example"))] == [
        ("istio.io/WaypointMissing", "NoWaypointForWildcardService")
    ]
    racing_entry = entry(annotations="{istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}")
    assert [c.reason for c in conditions_of(ENTRY, "e", racing_entry)] == ["NoWaypointForRacingConnectStrategy"]
    assert [c.type for c in conditions_of(ENTRY, "e", gateway(), entry(USE_WAYPOINT % "", "*.example"))] == [
        "istio.io/WaypointBound"
    ]


@pytest.mark.parametrize(("visibility", "reason"), [("PUBLIC", ["Public"]), ("NAMESPACE", ["Namespace"]), ("NONE", [])])
def test_service_entry_visibility_condition(visibility: str, reason: list[str]) -> None:
    mesh = f"serviceEntryVisibility: {{defaultVisibility: {visibility}}}"
    assert [c.reason for c in conditions_of(ENTRY, "e", entry(), mesh_config=mesh)] == reason


def test_workload_waypoint_condition() -> None:
    vm = make("WorkloadEntry", "vm", "{address: 10.2.0.1}", labels=USE_WAYPOINT % "")
    assert [c.reason for c in conditions_of(WORKLOAD, "vm", gateway(labels="{istio.io/waypoint-for: all}"), vm)] == [
        "WaypointAccepted"
    ]
    assert [c.reason for c in conditions_of(WORKLOAD, "vm", gateway(), vm)] == ["UnsupportedTrafficType"]


@pytest.mark.parametrize(
    ("spec", "annotations", "expected"),
    [
        ("{rules: [{}]}", "{}", (True, "Accepted", "attached to ztunnel")),
        (
            "{rules: [{to: [{operation: {methods: [GET], paths: [/]}}]}]}",
            "{}",
            (True, "UnsupportedValue", "methods, paths"),
        ),
        (
            "{action: DENY, rules: [{to: [{operation: {hosts: [x]}}]}]}",
            "{}",
            (True, "UnsupportedValue", "enforced without the HTTP rules"),
        ),
        ("{action: AUDIT, rules: [{}]}", "{}", (False, "UnsupportedValue", "does not support the AUDIT action")),
        ("{action: CUSTOM, provider: {name: x}, rules: [{}]}", "{}", (True, "UnsupportedValue", "is denied")),
        (
            "{action: DENY, rules: [{}]}",
            "{istio.io/dry-run: 'true'}",
            (False, "UnsupportedValue", "dry-run annotation"),
        ),
    ],
)
def test_ztunnel_policy_condition(spec: str, annotations: str, expected: tuple[bool, str, str]) -> None:
    (condition,) = conditions_of(POLICY, "p", make("AuthorizationPolicy", "p", spec, annotations=annotations))
    assert (condition.type, condition.status, condition.reason) == ("ZtunnelAccepted", *expected[:2])
    assert expected[2] in condition.message


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("[{kind: Service, name: s}]", (True, "Accepted", "bound to a/w")),
        ("[{kind: Service, name: none}]", (False, "TargetNotFound", "Service a/none was not found")),
        (
            "[{group: networking.istio.io, kind: ServiceEntry, name: e}]",
            (False, "AncestorNotBound", "ServiceEntry a/e is not bound to a waypoint"),
        ),
        ("[{group: gateway.networking.k8s.io, kind: Gateway, name: w}]", (True, "Accepted", "bound to a/w")),
        ("[{group: gateway.networking.k8s.io, kind: Gateway, name: none}]", (False, "TargetNotFound", "not bound")),
        (
            "[{group: gateway.networking.k8s.io, kind: GatewayClass, name: istio-waypoint}]",
            (False, "Invalid", "must be in the root namespace"),
        ),
        (
            "[{kind: Service, name: s}, {kind: Service, name: none}]",
            (True, "PartiallyInvalid", "Invalid targetRefs: Service.core:a/none"),
        ),
        (
            "[{kind: Service, name: x}, {kind: Service, name: none}]",
            (False, "Invalid", "Service.core:a/x, Service.core:a/none"),
        ),
    ],
)
def test_waypoint_policy_condition(targets: str, expected: tuple[bool, str, str]) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{rules: [{{}}], targetRefs: {targets}}}")
    (condition,) = conditions_of(POLICY, "p", gateway(), service(USE_WAYPOINT % ""), entry(), policy)
    assert (condition.type, condition.status, condition.reason) == ("WaypointAccepted", *expected[:2])
    assert expected[2] in condition.message


@pytest.mark.parametrize(
    ("name", "controller", "expected"),
    [
        ("istio-waypoint", "istio.io/mesh-controller", (True, "Accepted", "bound to istio-waypoint")),
        (
            "other",
            "istio.io/gateway-controller",
            (False, "Invalid", "GatewayClass must use controller name `istio.io/mesh-controller` for waypoints"),
        ),
        ("none", "istio.io/mesh-controller", (False, "TargetNotFound", "not bound")),
    ],
)
def test_waypoint_class_policy_condition(name: str, controller: str, expected: tuple[bool, str, str]) -> None:
    ref = f"[{{group: gateway.networking.k8s.io, kind: GatewayClass, name: {name}}}]"
    policy = make("AuthorizationPolicy", "p", f"{{rules: [{{}}], targetRefs: {ref}}}", "istio-system")
    classes = (
        []
        if name == "none"
        else [
            make(
                "GatewayClass", name, f"{{controllerName: {controller}}}", "", apiVersion="gateway.networking.k8s.io/v1"
            )
        ]
    )
    (condition,) = conditions_of(POLICY, "p", policy, *classes, namespace="istio-system")
    assert (condition.type, condition.status, condition.reason, condition.message) == ("WaypointAccepted", *expected)


def test_no_conditions_outside_ambient_mode() -> None:
    objects = service(USE_WAYPOINT % ""), make("AuthorizationPolicy", "p", "{rules: [{}]}")
    harness = World()
    harness.apply_objects(*objects)
    assert objects_with_status(harness.mesh) == ()
    assert objects_with_status(ambient(*objects, AMBIENT_ENABLE_STATUS="false").mesh) == ()
    assert {ref.kind for ref in objects_with_status(ambient(*objects).mesh)} == {SERVICE, POLICY}


# -- with an API server ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    for plain in (*definitions(), make("Namespace", "a")):
        api_server.put(plain)
    await api_server.start()
    yield api_server
    await api_server.stop()


def conditions(server: ApiServer, group: str, plural: str, name: str) -> dict[str, str]:
    status = (server.get(group, plural, "a", name) or {}).get("status", {})
    return {c["type"]: c["reason"] for c in status.get("conditions", ())}


async def test_conditions_are_patched_only_on_change(server: ApiServer, tmp_path: pathlib.Path) -> None:
    other = {
        "type": "example.com/Other",
        "status": "True",
        "reason": "Theirs",
        "message": "",
        "lastTransitionTime": "2025-01-01T00:00:00Z",
    }
    server.put(service("{istio.io/use-waypoint: x}") | {"status": {"conditions": [other]}})
    server.put(make("Service", "t", "{clusterIP: 10.96.0.2, ports: [{name: http, port: 80}]}"))
    server.put(make("AuthorizationPolicy", "p", "{rules: [{}]}"))
    async with running(AMBIENT, kubeconfig=str(write_kubeconfig(server, tmp_path / "config"))):
        bound = {"istio.io/WaypointBound": "WaypointIsNotReady"}
        await until(lambda: conditions(server, "", "services", "s") == {"example.com/Other": "Theirs", **bound})
        await until(
            lambda: conditions(server, SECURITY, "authorizationpolicies", "p") == {"ZtunnelAccepted": "Accepted"}
        )
        server.put(service("{}") | {"status": (server.get("", "services", "a", "s") or {})["status"]})
        await until(lambda: conditions(server, "", "services", "s") == {"example.com/Other": "Theirs"})
        await asyncio.sleep(0)
    patches = sorted(
        a.name for a in server.requests if a.verb == "patch" and a.subresource == "status" and a.namespace == "a"
    )
    assert patches == ["p", "s", "s"]

"""What services, workloads and policies of an ambient mesh are told in their status."""

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


def told(
    kind: GroupKind, name: str, *objects: Plain, mesh_config: str = "", namespace: str = "a"
) -> list[StatusCondition]:
    found = object_status(ambient(*objects, mesh_config=mesh_config).mesh, ObjectRef(kind, namespace, name))
    assert isinstance(found, ObjectConditions)
    return list(found.conditions)


USED = "{istio.io/use-waypoint: w%s}"
ATTACHED = "Successfully attached to waypoint a/w"


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("{}", []),
        (USED % "", [(True, "WaypointAccepted", ATTACHED)]),
        (
            USED % ", istio.io/ingress-use-waypoint: 'true'",
            [(True, "WaypointAccepted", f"{ATTACHED}. Ingress traffic will traverse the waypoint")],
        ),
        (
            USED % ", istio.io/use-waypoint-canary: x",
            [(True, "WaypointAccepted", f'{ATTACHED}. Canary waypoint not attached: waypoint "a/x" is not ready')],
        ),
        ("{istio.io/use-waypoint: x}", [(False, "WaypointIsNotReady", 'waypoint "a/x" is not ready')]),
        (
            "{istio.io/use-waypoint: v, istio.io/use-waypoint-namespace: b}",
            [(False, "AttachmentDenied", 'we are not permitted to attach to waypoint "b/v" (missing allowedRoutes?)')],
        ),
    ],
)
def test_the_waypoint_of_a_service(labels: str, expected: list[tuple[bool, str, str]]) -> None:
    found = told(SERVICE, "s", gateway(), gateway("b", name="v"), service(labels))
    assert [c[1:] for c in found] == expected
    assert {c.type for c in found} <= {"istio.io/WaypointBound"}


def test_what_a_service_entry_lacks_without_a_waypoint() -> None:
    assert told(ENTRY, "e", entry()) == []
    assert [(c.type, c.reason) for c in told(ENTRY, "e", entry(host="*.example"))] == [
        ("istio.io/WaypointMissing", "NoWaypointForWildcardService")
    ]
    racing = entry(annotations="{istio.io/connect-strategy: RACE_FIRST_TCP_CONNECT}")
    assert [c.reason for c in told(ENTRY, "e", racing)] == ["NoWaypointForRacingConnectStrategy"]
    assert [c.type for c in told(ENTRY, "e", gateway(), entry(USED % "", "*.example"))] == ["istio.io/WaypointBound"]


@pytest.mark.parametrize(("visibility", "reason"), [("PUBLIC", ["Public"]), ("NAMESPACE", ["Namespace"]), ("NONE", [])])
def test_who_knows_a_service_entry(visibility: str, reason: list[str]) -> None:
    mesh = f"serviceEntryVisibility: {{defaultVisibility: {visibility}}}"
    assert [c.reason for c in told(ENTRY, "e", entry(), mesh_config=mesh)] == reason


def test_the_waypoint_of_a_workload() -> None:
    vm = make("WorkloadEntry", "vm", "{address: 10.2.0.1}", labels=USED % "")
    assert [c.reason for c in told(WORKLOAD, "vm", gateway(labels="{istio.io/waypoint-for: all}"), vm)] == [
        "WaypointAccepted"
    ]
    assert [c.reason for c in told(WORKLOAD, "vm", gateway(), vm)] == ["UnsupportedTrafficType"]


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
def test_a_policy_of_ztunnels(spec: str, annotations: str, expected: tuple[bool, str, str]) -> None:
    (found,) = told(POLICY, "p", make("AuthorizationPolicy", "p", spec, annotations=annotations))
    assert (found.type, found.status, found.reason) == ("ZtunnelAccepted", *expected[:2])
    assert expected[2] in found.message


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
def test_a_policy_of_waypoints(targets: str, expected: tuple[bool, str, str]) -> None:
    policy = make("AuthorizationPolicy", "p", f"{{rules: [{{}}], targetRefs: {targets}}}")
    (found,) = told(POLICY, "p", gateway(), service(USED % ""), entry(), policy)
    assert (found.type, found.status, found.reason) == ("WaypointAccepted", *expected[:2])
    assert expected[2] in found.message


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
def test_a_policy_of_all_waypoints_names_their_class(
    name: str, controller: str, expected: tuple[bool, str, str]
) -> None:
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
    (found,) = told(POLICY, "p", policy, *classes, namespace="istio-system")
    assert (found.type, found.status, found.reason, found.message) == ("WaypointAccepted", *expected)


def test_nobody_is_told_in_a_mesh_that_is_not_ambient() -> None:
    objects = service(USED % ""), make("AuthorizationPolicy", "p", "{rules: [{}]}")
    made = World()
    made.apply_objects(*objects)
    assert objects_with_status(made.mesh) == ()
    assert objects_with_status(ambient(*objects, AMBIENT_ENABLE_STATUS="false").mesh) == ()
    assert {ref.kind for ref in objects_with_status(ambient(*objects).mesh)} == {SERVICE, POLICY}


# -- at an API server ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    made = ApiServer()
    for plain in (*definitions(), make("Namespace", "a")):
        made.put(plain)
    await made.start()
    yield made
    await made.stop()


def conditions(server: ApiServer, group: str, plural: str, name: str) -> dict[str, str]:
    status = (server.get(group, plural, "a", name) or {}).get("status", {})
    return {c["type"]: c["reason"] for c in status.get("conditions", ())}


async def test_conditions_are_written_where_they_change_and_go(server: ApiServer, tmp_path: pathlib.Path) -> None:
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
    written = sorted(
        a.name for a in server.requests if a.verb == "patch" and a.subresource == "status" and a.namespace == "a"
    )
    assert written == ["p", "s", "s"]

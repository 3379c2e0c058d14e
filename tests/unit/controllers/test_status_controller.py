"""Statuses of the Gateway API and of Ingresses at an API server."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from pilot.config.group_kind import GATEWAY_API, GroupKind
from pilot.config.problem import ObjectRef
from pilot.controllers.status_controller import MAX_ATTEMPTS, StatusController
from pilot.ingest.decode import DocumentOrigin
from pilot.kube.api_errors import Conflict
from pilot.mesh.tables.database import Mesh
from testing.apiserver.definitions import definitions
from testing.apiserver.server import ApiServer
from testing.control_planes.kube_plane import Plane, running
from testing.edits.gateway_objects import gateway_object
from testing.kube.kube_access import QUICK_WATCH, make_rng, until, write_kubeconfig
from testing.mesh.objects import Plain, at, endpoint_slice, make

pytestmark = pytest.mark.slow

HTTP, ADDRESS = (
    "{name: http, port: 80, protocol: HTTP}",
    "gatewayClassName: istio, addresses: [{type: Hostname, value: front}]",
)
GATEWAY = f"{ADDRESS}, listeners: [{HTTP}]"
ROUTE = "parentRefs: [{name: gw}], rules: [{backendRefs: [{name: web, port: 80}]}]"
OURS, OTHER = "istio.io/gateway-controller", "example.com/other"
FRONT = make(
    "Service",
    "front",
    "{type: LoadBalancer, clusterIP: 10.96.0.2, selector: {app: f}, ports: [{name: http, port: 80}]}",
)
SERVICES: tuple[Plain, ...] = (
    make("Namespace", "a"),
    make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}"),
    FRONT | {"status": {"loadBalancer": {"ingress": [{"ip": "9.9.9.9"}]}}},
    endpoint_slice("front", at("10.1.0.1"), ports="[{name: http, port: 80}]"),
)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    api_server = ApiServer()
    for definition in (*definitions(), *SERVICES):
        api_server.put(definition)
    await api_server.start()
    yield api_server
    await api_server.stop()


def gateway_api_object(kind: str, name: str, spec: str, **more: Any) -> Plain:
    definition = gateway_object(kind, name, spec, "a", **more)
    definition["metadata"]["generation"] = 1
    return definition


def status(server: ApiServer, plural: str, name: str, namespace: str = "a", group: str = GATEWAY_API) -> dict[str, Any]:
    object_status: dict[str, Any] = (server.get(group, plural, namespace, name) or {}).get("status", {})
    return object_status


def condition_of(entry: dict[str, Any], type_: str) -> tuple[str, str]:
    return next(((c["status"], c["reason"]) for c in entry.get("conditions", ()) if c["type"] == type_), ("", ""))


def parents(server: ApiServer, name: str = "r", plural: str = "httproutes") -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = status(server, plural, name).get("parents", [])
    return entries


def writes(server: ApiServer) -> int:
    return sum(request.verb == "patch" and request.subresource == "status" for request in server.requests)


def plane(server: ApiServer, tmp_path: pathlib.Path, environ: dict[str, str] | None = None) -> Any:
    return running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config")))


async def settle(process: Plane, server: ApiServer) -> int:
    """Wait until writes stop, and return their number."""
    before = -1
    while before != writes(server):
        before = writes(server)
        await asyncio.sleep(0.1)
    return before


async def test_gateway_and_route_statuses(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)) and bool(status(server, "gateways", "gw")))
        gateway = status(server, "gateways", "gw")
        assert condition_of(gateway, "Accepted") == ("True", "Accepted")
        assert condition_of(gateway, "Programmed") == ("True", "Programmed")
        assert gateway["addresses"] == [{"type": "IPAddress", "value": "9.9.9.9"}]
        (listener,) = gateway["listeners"]
        assert (listener["name"], listener["attachedRoutes"]) == ("http", 1)
        assert listener["supportedKinds"] == [
            {"group": GATEWAY_API, "kind": "HTTPRoute"},
            {"group": GATEWAY_API, "kind": "GRPCRoute"},
        ]
        (parent,) = parents(server)
        assert parent["parentRef"] == {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"}
        assert parent["controllerName"] == OURS
        assert {c["observedGeneration"] for c in parent["conditions"]} == {1}


async def test_only_changed_conditions_get_a_new_time(server: ApiServer, tmp_path: pathlib.Path) -> None:
    long_ago = "2020-01-01T00:00:00Z"
    condition = {
        "reason": "Old",
        "message": "",
        "observedGeneration": 1,
        "lastTransitionTime": long_ago,
        "status": "True",
    }
    conditions = [
        {**condition, "type": "Accepted"},
        {**condition, "type": "ResolvedRefs"},
        {**condition, "type": "example.com/Other"},
    ]
    parent = {
        "parentRef": {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"},
        "controllerName": OURS,
        "conditions": conditions,
    }
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE.replace("web", "ghost")) | {"status": {"parents": [parent]}})
    async with plane(server, tmp_path):
        await until(
            lambda: (
                bool(parents(server))
                and condition_of(parents(server)[0], "ResolvedRefs") == ("False", "BackendNotFound")
            )
        )
        by_type = {c["type"]: c for c in parents(server)[0]["conditions"]}
        assert by_type["Accepted"]["lastTransitionTime"] == long_ago
        assert by_type["ResolvedRefs"]["lastTransitionTime"] != long_ago
        assert by_type["example.com/Other"]["reason"] == "Old"


async def test_foreign_parent_entries_stay(server: ApiServer, tmp_path: pathlib.Path) -> None:
    other = {
        "parentRef": {"group": GATEWAY_API, "kind": "Gateway", "name": "theirs"},
        "controllerName": OTHER,
        "conditions": [],
    }
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE) | {"status": {"parents": [other]}})
    async with plane(server, tmp_path):
        await until(lambda: [parent["controllerName"] for parent in parents(server)] == [OTHER, OURS])
        stored = server.get(GATEWAY_API, "httproutes", "a", "r")
        assert stored is not None
        server.put({**stored, "spec": {**stored["spec"], "parentRefs": [{"name": "theirs"}]}})
        await until(lambda: parents(server) == [other])


async def test_unchanged_statuses_are_not_rewritten(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    for number in range(5):
        server.put(gateway_api_object("HTTPRoute", f"r{number}", ROUTE))
    async with plane(server, tmp_path) as process:
        await until(lambda: all(parents(server, f"r{n}") for n in range(5)) and bool(status(server, "gateways", "gw")))
        before = await settle(process, server)
    async with plane(server, tmp_path) as process:
        await until(lambda: process.plane.ready)
        assert await settle(process, server) == before, "the next leader has nothing to write"


async def test_edit_updates_the_observed_generation(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)))
        stored = server.get(GATEWAY_API, "httproutes", "a", "r")
        assert stored is not None
        spec = {**stored["spec"], "hostnames": ["x.example.com"]}
        server.put({**stored, "metadata": {**stored["metadata"], "generation": 2}, "spec": spec})
        await until(lambda: {c["observedGeneration"] for c in parents(server)[0]["conditions"]} == {2})


async def test_conflicting_write_is_retried(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.faults.refuse(
        409, times=3, matching=lambda request: request.verb == "patch" and request.subresource == "status"
    )
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)) and bool(status(server, "gateways", "gw")))


async def test_only_the_leader_writes_statuses(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    metadata = {"name": "istio-gateway-status-leader-default", "namespace": "istio-system"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    server.put(lease | {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}})
    server.put(make("Namespace", "istio-system"))
    async with plane(server, tmp_path) as process:
        await until(lambda: process.plane.ready and server.get(GATEWAY_API, "gatewayclasses", "", "istio") is not None)
        await settle(process, server)
        assert status(server, "gateways", "gw") == {}


@pytest.mark.parametrize(
    ("label", "namespace", "tag", "tag_revision", "is_written"),
    [
        ("", "", "", "", False),
        ("blue", "", "", "", True),
        ("", "blue", "", "", True),
        ("", "prod", "prod", "blue", True),
        ("", "green", "", "", False),
        ("", "", "default", "blue", True),
        ("", "prod", "prod", "green", False),
        ("", "", "default", "green", False),
    ],
)
async def test_revision_writes_only_its_objects(
    server: ApiServer, tmp_path: pathlib.Path, label: str, namespace: str, tag: str, tag_revision: str, is_written: bool
) -> None:
    labels = {"labels": {"istio.io/rev": label}} if label else {}
    server.put(make("Namespace", "a", labels=f"{{istio.io/rev: {namespace}}}" if namespace else "{}"))
    if tag:
        webhook = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "MutatingWebhookConfiguration",
            "webhooks": [],
        }
        server.put(
            webhook
            | {
                "metadata": {
                    "name": f"istio-revision-tag-{tag}",
                    "labels": {"istio.io/rev": tag_revision, "istio.io/tag": tag},
                }
            }
        )
    server.put(gateway_api_object("Gateway", "gw", GATEWAY, **labels))
    async with plane(server, tmp_path, {"REVISION": "blue"}) as process:
        await until(lambda: bool(status(server, "gatewayclasses", "istio", "")))
        await settle(process, server)
        assert bool(status(server, "gateways", "gw")) is is_written


async def test_gateway_classes_are_created_but_never_changed(server: ApiServer, tmp_path: pathlib.Path) -> None:
    foreign_class = {"apiVersion": f"{GATEWAY_API}/v1", "kind": "GatewayClass", "metadata": {"name": "istio-remote"}}
    server.put(foreign_class | {"spec": {"controllerName": "example.com/mine"}})
    async with plane(server, tmp_path):
        await until(
            lambda: condition_of(status(server, "gatewayclasses", "istio", ""), "Accepted") == ("True", "Accepted")
        )
        created = server.get(GATEWAY_API, "gatewayclasses", "", "istio")
        assert created is not None
        assert created["spec"] == {"controllerName": OURS, "description": "The default Istio GatewayClass"}
        unchanged = server.get(GATEWAY_API, "gatewayclasses", "", "istio-remote")
        assert unchanged is not None
        assert unchanged["spec"] == {"controllerName": "example.com/mine"}
        assert "status" not in unchanged
        server.delete(created)
        await until(lambda: bool(server.get(GATEWAY_API, "gatewayclasses", "", "istio")))


async def test_crds_may_be_installed_later(tmp_path: pathlib.Path) -> None:
    server = ApiServer()
    await server.start()
    try:
        async with plane(server, tmp_path) as process:
            await until(lambda: process.plane.ready)
            for crd in definitions():
                server.put(crd)
            await until(
                lambda: condition_of(status(server, "gatewayclasses", "istio", ""), "Accepted") == ("True", "Accepted")
            )
    finally:
        await server.stop()


async def test_gateway_classes_are_created_once_their_crd_exists(tmp_path: pathlib.Path) -> None:
    server = ApiServer()
    for crd in definitions():
        if crd["metadata"]["name"] != f"gatewayclasses.{GATEWAY_API}":
            server.put(crd)
    await server.start()
    try:
        async with plane(server, tmp_path) as process:
            await until(lambda: process.plane.ready)
            server.put(next(crd for crd in definitions() if crd["metadata"]["name"] == f"gatewayclasses.{GATEWAY_API}"))
            await until(lambda: bool(server.get(GATEWAY_API, "gatewayclasses", "", "istio")))
    finally:
        await server.stop()


async def test_policy_status_has_target_and_gateway_ancestors(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(gateway_api_object("Gateway", "gw", GATEWAY))
    server.put(gateway_api_object("HTTPRoute", "r", ROUTE))
    spec = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    server.put(gateway_api_object("BackendTLSPolicy", "p", spec))
    async with plane(server, tmp_path):
        await until(lambda: len(status(server, "backendtlspolicies", "p").get("ancestors", ())) == 2)
        target, gateway = status(server, "backendtlspolicies", "p")["ancestors"]
        assert target["ancestorRef"] == {"group": "", "kind": "Service", "name": "web"}
        assert target["controllerName"] == "istio.io/mesh-controller"
        assert gateway["ancestorRef"] == {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"}
        assert gateway["controllerName"] == OURS
        assert condition_of(target, "Accepted") == condition_of(gateway, "Accepted") == ("True", "Accepted")


async def test_statuses_of_the_other_gateway_api_kinds(server: ApiServer, tmp_path: pathlib.Path) -> None:
    names = "{name: n, port: 82, protocol: TLS, tls: {mode: Passthrough}}"
    listeners = f"allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{HTTP}, {{name: sql, port: 81, protocol: TCP}}, {names}]"
    server.put(gateway_api_object("Gateway", "gw", f"{ADDRESS}, {listeners}"))
    server.put(
        gateway_api_object(
            "ListenerSet", "s", "parentRef: {name: gw}, listeners: [{name: more, port: 83, protocol: HTTP}]"
        )
    )
    for kind in ("GRPCRoute", "TCPRoute", "TLSRoute"):
        server.put(gateway_api_object(kind, "r", ROUTE))
    async with plane(server, tmp_path):
        for plural in ("grpcroutes", "tcproutes", "tlsroutes"):
            await until(
                lambda plural=plural: (
                    [condition_of(parent, "Accepted")[0] for parent in parents(server, plural=plural)] == ["True"]
                )
            )
        await until(lambda: condition_of(status(server, "listenersets", "s"), "Accepted") == ("True", "Accepted"))
        assert status(server, "listenersets", "s")["listeners"][0]["port"] == 83
        await until(lambda: status(server, "gateways", "gw").get("attachedListenerSets") == 1)


async def test_ingress_status_has_the_load_balancer_addresses(server: ApiServer, tmp_path: pathlib.Path) -> None:
    edge = make(
        "Service",
        "istio-ingressgateway",
        "{type: LoadBalancer, externalIPs: [8.8.8.8], ports: [{port: 80}]}",
        "istio-system",
    )
    server.put(edge | {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}})
    for name, kind in (("ours", "istio"), ("theirs", "nginx")):
        spec = {"apiVersion": "networking.k8s.io/v1", "spec": {"rules": [{"host": "x.com"}]}}
        server.put(make("Ingress", name, annotations=f"{{kubernetes.io/ingress.class: {kind}}}") | spec)

    def load_balancer(name: str) -> Any:
        return status(server, "ingresses", name, group="networking.k8s.io").get("loadBalancer")

    async with plane(server, tmp_path):
        await until(lambda: load_balancer("ours") == {"ingress": [{"ip": "8.8.8.8"}, {"hostname": "lb.example.com"}]})
        assert load_balancer("theirs") is None


@pytest.mark.parametrize(("conflicts", "fails"), [(0, False), (MAX_ATTEMPTS - 1, False), (MAX_ATTEMPTS, True)])
async def test_conflicts_are_retried_five_times(monkeypatch: pytest.MonkeyPatch, conflicts: int, fails: bool) -> None:
    ref, calls = ObjectRef(GroupKind(GATEWAY_API, "HTTPRoute"), "a", "r"), list[Any]()

    class Client:
        async def call(self, verb: str, path: str, body: bytes = b"", content_type: str = "") -> bytes:
            calls.append((verb, path, content_type, body and msgspec.json.decode(body)))
            if verb == "PATCH" and len(calls) // 2 <= conflicts:
                raise Conflict(409, "Conflict", "somebody was faster")
            return msgspec.json.encode(
                {"metadata": {"name": "r", "namespace": "a", "resourceVersion": str(len(calls))}}
            )

    client: Any = Client()
    controller = StatusController(
        client,
        Mesh(),
        (ref.kind,),
        lambda _: "/routes/r",
        lambda _: True,
        DocumentOrigin(),
        QUICK_WATCH.backoff,
        make_rng(1),
    )
    monkeypatch.setitem(controller._nodes, ref, object())
    monkeypatch.setattr(controller, "_patch_for", lambda *_: {"parents": [1]})
    if fails:
        with pytest.raises(Conflict):
            await controller._reconcile(ref)
    else:
        await controller._reconcile(ref)
    attempts = min(conflicts + 1, 5)
    body = [
        {"metadata": {"resourceVersion": str(2 * number + 1)}, "status": {"parents": [1]}} for number in range(attempts)
    ]
    assert calls == [
        call
        for patch in body
        for call in (
            ("GET", "/routes/r", "", b""),
            ("PATCH", "/routes/r/status", "application/merge-patch+json", patch),
        )
    ]

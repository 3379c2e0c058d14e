"""Statuses of the Gateway API and of Ingresses at an API server: written by the leader, on change alone, and what others wrote stays."""

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
    made = ApiServer()
    for plain in (*definitions(), *SERVICES):
        made.put(plain)
    await made.start()
    yield made
    await made.stop()


def ours(kind: str, name: str, spec: str, **more: Any) -> Plain:
    made = gateway_object(kind, name, spec, "a", **more)
    made["metadata"]["generation"] = 1
    return made


def status(server: ApiServer, plural: str, name: str, namespace: str = "a", group: str = GATEWAY_API) -> dict[str, Any]:
    found: dict[str, Any] = (server.get(group, plural, namespace, name) or {}).get("status", {})
    return found


def told(entry: dict[str, Any], type_: str) -> tuple[str, str]:
    return next(((c["status"], c["reason"]) for c in entry.get("conditions", ()) if c["type"] == type_), ("", ""))


def parents(server: ApiServer, name: str = "r", plural: str = "httproutes") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = status(server, plural, name).get("parents", [])
    return found


def writes(server: ApiServer) -> int:
    return sum(asked.verb == "patch" and asked.subresource == "status" for asked in server.requests)


def plane(server: ApiServer, tmp_path: pathlib.Path, environ: dict[str, str] | None = None) -> Any:
    return running(environ, kubeconfig=str(write_kubeconfig(server, tmp_path / "config")))


async def settled(it: Plane, server: ApiServer) -> int:
    """Waits until nothing has been written for a while; returns how many writes there were until then."""
    before = -1
    while before != writes(server):
        before = writes(server)
        await asyncio.sleep(0.1)
    return before


async def test_a_gateway_and_its_route_are_told_what_becomes_of_them(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    server.put(ours("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)) and bool(status(server, "gateways", "gw")))
        gateway = status(server, "gateways", "gw")
        assert told(gateway, "Accepted") == ("True", "Accepted")
        assert told(gateway, "Programmed") == ("True", "Programmed")
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


async def test_an_edit_changes_what_it_says_and_the_time_of_what_changed(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
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
    there = {
        "parentRef": {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"},
        "controllerName": OURS,
        "conditions": conditions,
    }
    server.put(ours("Gateway", "gw", GATEWAY))
    server.put(ours("HTTPRoute", "r", ROUTE.replace("web", "ghost")) | {"status": {"parents": [there]}})
    async with plane(server, tmp_path):
        await until(
            lambda: bool(parents(server)) and told(parents(server)[0], "ResolvedRefs") == ("False", "BackendNotFound")
        )
        by_type = {c["type"]: c for c in parents(server)[0]["conditions"]}
        assert by_type["Accepted"]["lastTransitionTime"] == long_ago
        assert by_type["ResolvedRefs"]["lastTransitionTime"] != long_ago
        assert by_type["example.com/Other"]["reason"] == "Old"


async def test_entries_of_other_controllers_stay_and_ours_go_with_their_parent(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    other = {
        "parentRef": {"group": GATEWAY_API, "kind": "Gateway", "name": "theirs"},
        "controllerName": OTHER,
        "conditions": [],
    }
    server.put(ours("Gateway", "gw", GATEWAY))
    server.put(ours("HTTPRoute", "r", ROUTE) | {"status": {"parents": [other]}})
    async with plane(server, tmp_path):
        await until(lambda: [one["controllerName"] for one in parents(server)] == [OTHER, OURS])
        stored = server.get(GATEWAY_API, "httproutes", "a", "r")
        assert stored is not None
        server.put({**stored, "spec": {**stored["spec"], "parentRefs": [{"name": "theirs"}]}})
        await until(lambda: parents(server) == [other])


async def test_what_is_written_is_no_news(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    for number in range(5):
        server.put(ours("HTTPRoute", f"r{number}", ROUTE))
    async with plane(server, tmp_path) as it:
        await until(lambda: all(parents(server, f"r{n}") for n in range(5)) and bool(status(server, "gateways", "gw")))
        before = await settled(it, server)
    async with plane(server, tmp_path) as it:
        await until(lambda: it.plane.ready)
        assert await settled(it, server) == before, "the next leader finds everything as it should be"


async def test_an_edit_that_changes_no_condition_is_observed(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    server.put(ours("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)))
        stored = server.get(GATEWAY_API, "httproutes", "a", "r")
        assert stored is not None
        spec = {**stored["spec"], "hostnames": ["x.example.com"]}
        server.put({**stored, "metadata": {**stored["metadata"], "generation": 2}, "spec": spec})
        await until(lambda: {c["observedGeneration"] for c in parents(server)[0]["conditions"]} == {2})


async def test_somebody_who_writes_at_the_same_time_loses_nothing(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    server.faults.refuse(409, times=3, matching=lambda asked: asked.verb == "patch" and asked.subresource == "status")
    server.put(ours("HTTPRoute", "r", ROUTE))
    async with plane(server, tmp_path):
        await until(lambda: bool(parents(server)) and bool(status(server, "gateways", "gw")))


async def test_only_the_leader_writes(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    metadata = {"name": "istio-gateway-status-leader-default", "namespace": "istio-system"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    server.put(lease | {"spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 3600}})
    server.put(make("Namespace", "istio-system"))
    async with plane(server, tmp_path) as it:
        await until(lambda: it.plane.ready and server.get(GATEWAY_API, "gatewayclasses", "", "istio") is not None)
        await settled(it, server)
        assert status(server, "gateways", "gw") == {}


@pytest.mark.parametrize(
    ("label", "namespace", "tag", "of", "is_written"),
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
async def test_a_revision_writes_what_is_its_own(
    server: ApiServer, tmp_path: pathlib.Path, label: str, namespace: str, tag: str, of: str, is_written: bool
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
            | {"metadata": {"name": f"istio-revision-tag-{tag}", "labels": {"istio.io/rev": of, "istio.io/tag": tag}}}
        )
    server.put(ours("Gateway", "gw", GATEWAY, **labels))
    async with plane(server, tmp_path, {"REVISION": "blue"}) as it:
        await until(lambda: bool(status(server, "gatewayclasses", "istio", "")))
        await settled(it, server)
        assert bool(status(server, "gateways", "gw")) is is_written


async def test_classes_are_made_and_told_that_they_are_ours_but_never_changed(
    server: ApiServer, tmp_path: pathlib.Path
) -> None:
    mine = {"apiVersion": f"{GATEWAY_API}/v1", "kind": "GatewayClass", "metadata": {"name": "istio-remote"}}
    server.put(mine | {"spec": {"controllerName": "example.com/mine"}})
    async with plane(server, tmp_path):
        await until(lambda: told(status(server, "gatewayclasses", "istio", ""), "Accepted") == ("True", "Accepted"))
        made = server.get(GATEWAY_API, "gatewayclasses", "", "istio")
        assert made is not None
        assert made["spec"] == {"controllerName": OURS, "description": "The default Istio GatewayClass"}
        kept = server.get(GATEWAY_API, "gatewayclasses", "", "istio-remote")
        assert kept is not None
        assert kept["spec"] == {"controllerName": "example.com/mine"}
        assert "status" not in kept
        server.delete(made)
        await until(lambda: bool(server.get(GATEWAY_API, "gatewayclasses", "", "istio")))


async def test_definitions_may_come_later(tmp_path: pathlib.Path) -> None:
    server = ApiServer()
    await server.start()
    try:
        async with plane(server, tmp_path) as it:
            await until(lambda: it.plane.ready)
            for plain in definitions():
                server.put(plain)
            await until(lambda: told(status(server, "gatewayclasses", "istio", ""), "Accepted") == ("True", "Accepted"))
    finally:
        await server.stop()


async def test_classes_are_made_when_their_definition_comes_last(tmp_path: pathlib.Path) -> None:
    server = ApiServer()
    for plain in definitions():
        if plain["metadata"]["name"] != f"gatewayclasses.{GATEWAY_API}":
            server.put(plain)
    await server.start()
    try:
        async with plane(server, tmp_path) as it:
            await until(lambda: it.plane.ready)
            server.put(
                next(plain for plain in definitions() if plain["metadata"]["name"] == f"gatewayclasses.{GATEWAY_API}")
            )
            await until(lambda: bool(server.get(GATEWAY_API, "gatewayclasses", "", "istio")))
    finally:
        await server.stop()


async def test_policies_are_told_by_target_and_by_gateway(server: ApiServer, tmp_path: pathlib.Path) -> None:
    server.put(ours("Gateway", "gw", GATEWAY))
    server.put(ours("HTTPRoute", "r", ROUTE))
    spec = "targetRefs: [{group: '', kind: Service, name: web}], validation: {wellKnownCACertificates: System, hostname: x}"
    server.put(ours("BackendTLSPolicy", "p", spec))
    async with plane(server, tmp_path):
        await until(lambda: len(status(server, "backendtlspolicies", "p").get("ancestors", ())) == 2)
        target, gateway = status(server, "backendtlspolicies", "p")["ancestors"]
        assert target["ancestorRef"] == {"group": "", "kind": "Service", "name": "web"}
        assert target["controllerName"] == "istio.io/mesh-controller"
        assert gateway["ancestorRef"] == {"group": GATEWAY_API, "kind": "Gateway", "name": "gw"}
        assert gateway["controllerName"] == OURS
        assert told(target, "Accepted") == told(gateway, "Accepted") == ("True", "Accepted")


async def test_every_other_kind_of_the_api_is_told_too(server: ApiServer, tmp_path: pathlib.Path) -> None:
    names = "{name: n, port: 82, protocol: TLS, tls: {mode: Passthrough}}"
    listeners = f"allowedListeners: {{namespaces: {{from: Same}}}}, listeners: [{HTTP}, {{name: sql, port: 81, protocol: TCP}}, {names}]"
    server.put(ours("Gateway", "gw", f"{ADDRESS}, {listeners}"))
    server.put(ours("ListenerSet", "s", "parentRef: {name: gw}, listeners: [{name: more, port: 83, protocol: HTTP}]"))
    for kind in ("GRPCRoute", "TCPRoute", "TLSRoute"):
        server.put(ours(kind, "r", ROUTE))
    async with plane(server, tmp_path):
        for plural in ("grpcroutes", "tcproutes", "tlsroutes"):
            await until(
                lambda plural=plural: [told(one, "Accepted")[0] for one in parents(server, plural=plural)] == ["True"]
            )
        await until(lambda: told(status(server, "listenersets", "s"), "Accepted") == ("True", "Accepted"))
        assert status(server, "listenersets", "s")["listeners"][0]["port"] == 83
        await until(lambda: status(server, "gateways", "gw").get("attachedListenerSets") == 1)


async def test_an_ingress_is_told_where_it_is_reached(server: ApiServer, tmp_path: pathlib.Path) -> None:
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

    def reached(name: str) -> Any:
        return status(server, "ingresses", name, group="networking.k8s.io").get("loadBalancer")

    async with plane(server, tmp_path):
        await until(lambda: reached("ours") == {"ingress": [{"ip": "8.8.8.8"}, {"hostname": "lb.example.com"}]})
        assert reached("theirs") is None


@pytest.mark.parametrize(("conflicts", "gives_up"), [(0, False), (MAX_ATTEMPTS - 1, False), (MAX_ATTEMPTS, True)])
async def test_a_status_is_tried_five_times_while_somebody_is_faster(
    monkeypatch: pytest.MonkeyPatch, conflicts: int, gives_up: bool
) -> None:
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
    made = StatusController(
        client,
        Mesh(),
        (ref.kind,),
        lambda _: "/routes/r",
        lambda _: True,
        DocumentOrigin(),
        QUICK_WATCH.backoff,
        make_rng(1),
    )
    monkeypatch.setitem(made._nodes, ref, object())
    monkeypatch.setattr(made, "_patch_for", lambda *_: {"parents": [1]})
    if gives_up:
        with pytest.raises(Conflict):
            await made._reconcile(ref)
    else:
        await made._reconcile(ref)
    tries = min(conflicts + 1, 5)
    body = [
        {"metadata": {"resourceVersion": str(2 * number + 1)}, "status": {"parents": [1]}} for number in range(tries)
    ]
    assert calls == [
        call
        for each in body
        for call in (("GET", "/routes/r", "", b""), ("PATCH", "/routes/r/status", "application/merge-patch+json", each))
    ]

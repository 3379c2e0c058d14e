"""Answers of the dashboard about one object."""

from __future__ import annotations

import base64
import dataclasses
import pathlib

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE
from pilot.config.problem import ObjectRef, Problem
from pilot.debug.dashboard.object_answer import describe_object
from pilot.debug.page import Refused
from pilot.debug.sources import Sources
from pilot.ingest.files.object_text import read_text
from testing.mesh.debug_server import sources
from testing.mesh.objects import at, endpoint_slice, make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy
from tests.unit.debug.dashboard.test_fleet import connection

RULE = ObjectRef(GroupKind(NETWORKING, "DestinationRule"), "a", "r")
TEXT = """# A comment of the file
---
apiVersion: v1
kind: Secret
metadata: {name: r, namespace: a}
data: {secret: bWFnaWM=}
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: r, namespace: a}
spec:
  host: web # a comment
"""


def from_file(pages: Sources, file: pathlib.Path) -> Sources:
    return dataclasses.replace(pages, document_of=lambda ref: str(file), read_text=read_text)


async def test_object_in_force_is_shown() -> None:
    pages = sources(world(make("DestinationRule", "r", "{host: web}", "a")).mesh)
    answer = await describe_object(pages, RULE)
    assert (answer["object"]["spec"], answer["text"], answer["problems"]) == ({"host": "web"}, "", [])


async def test_text_of_the_document_is_shown_with_its_line(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(TEXT)
    problem = Problem(code="c", object=RULE, path="spec.host", message="m", file=str(file), line=12)
    pages = dataclasses.replace(sources(world().mesh, problems=[problem]), read_text=read_text)
    answer = await describe_object(pages, RULE)
    assert (answer["object"], answer["source"], answer["line"]) == (None, str(file), 8)
    assert answer["text"].splitlines()[12 - 8] == "  host: web # a comment"
    assert "Secret" not in answer["text"]
    assert answer["problems"][0]["line"] == 12
    pages = sources(world(make("DestinationRule", "r", "{host: web}", "a")).mesh)
    answer = await describe_object(from_file(pages, file), RULE)
    assert (answer["source"], answer["line"]) == (str(file), 8)


@pytest.mark.parametrize(
    ("text", "name"),
    [(TEXT, "other"), ("r: {", "r"), ("kind: DestinationRule\nmetadata: {name: r}\n", "r"), ("r", "r")],
)
def test_other_documents_are_not_shown(tmp_path: pathlib.Path, text: str, name: str) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(text)
    assert read_text(str(file), RULE._replace(name=name)) == (0, "")
    assert read_text(str(tmp_path / "gone"), RULE) == read_text("a source", RULE) == read_text("", RULE) == (0, "")


async def test_content_of_secrets_is_not_shown(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mesh.yaml"
    file.write_text(TEXT)
    data = {"secret": base64.b64encode(b"magic").decode()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "r", "namespace": "a"}, "data": data}
    pages = from_file(sources(world(secret).mesh), file)
    answer = await describe_object(pages, ObjectRef(GroupKind("", "Secret"), "a", "r"))
    assert (answer["object"]["spec"], answer["text"]) == ({"keys": ["secret"]}, "")
    assert "magic" not in str(answer)
    assert data["secret"] not in str(answer)


async def test_unknown_object_is_refused() -> None:
    with pytest.raises(Refused, match=r"^networking.istio.io/DestinationRule a/r does not exist\n$"):
        await describe_object(sources(world().mesh), RULE)


async def test_gateway_lists_errors_of_its_routes_and_a_missing_host_has_a_suggestion() -> None:
    servers = "[{port: {number: 80, name: http, protocol: HTTP}, hosts: ['*']}]"
    spec = (
        "{hosts: [x.example], gateways: [g], http: [{route: [{destination: {host: web.accunts.svc.cluster.local}}]}]}"
    )
    web = make("Service", "web", "{clusterIP: 10.1.0.1, ports: [{name: http, port: 80}]}", "accounts")
    gateway = make("Gateway", "g", f"{{selector: {{app: gateway}}, servers: {servers}}}", "a")
    mesh = world(web, gateway, make("VirtualService", "r", spec, "a"))
    pages = sources(mesh.mesh, problems=problems_of(mesh))
    answer = await describe_object(pages, ObjectRef(GroupKind(NETWORKING, "Gateway"), "a", "g"))
    assert [problem["code"] for problem in answer["routeProblems"]] == ["destination-not-found"]
    answer = await describe_object(pages, ObjectRef(GroupKind(NETWORKING, "VirtualService"), "a", "r"))
    host = {"host": "web.accunts.svc.cluster.local", "namespace": "", "similar": "web.accounts.svc.cluster.local"}
    assert answer["hosts"] == [host]


async def test_secret_names_the_gateways_that_use_it_with_their_hosts_and_proxies() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "cert", "namespace": "a"}, "data": {}}
    tls = "tls: {mode: SIMPLE, credentialName: cert}"
    servers = (
        f"[{{port: {{number: 443, name: https, protocol: HTTPS}}, hosts: [x.example], {tls}}}, "
        "{port: {number: 80, name: http, protocol: HTTP}, hosts: [y.example]}]"
    )
    mesh = world(secret, make("Gateway", "g", f"{{selector: {{app: gateway}}, servers: {servers}}}", "a"))
    router = connection("gateway-0.a")
    router.proxy = proxy("router", "gateway-0", "a", "10.0.0.9", {"app": "gateway"})
    router.proxy_key = mesh.connect(router.proxy)
    answer = await describe_object(sources(mesh.mesh, router), ObjectRef(GroupKind("", "Secret"), "a", "cert"))
    [user] = answer["usedBy"]
    assert (user["gateway"]["name"], user["hosts"], user["total"]) == ("g", ("x.example",), 1)
    assert user["proxies"][0]["name"] == "gateway-0.a"


async def test_endpoint_slice_is_shown_as_kubernetes_writes_it() -> None:
    pages = sources(world(endpoint_slice("web", at("10.0.0.1", conditions="{ready: false}"))).mesh)
    [key] = ENDPOINT_SLICE.all_keys(pages.db)
    answer = await describe_object(pages, ObjectRef(ENDPOINT_SLICE.id, key.namespace, key.name))
    shown = answer["object"]
    assert "spec" not in shown
    assert shown["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {"ready": False}}]

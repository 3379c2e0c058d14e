"""Phrases about added objects on the dashboard."""

from __future__ import annotations

from typing import Literal

import pytest

from pilot.debug.changes import ChangedObject, ChangeLog
from pilot.debug.dashboard.gists import gists_of_added
from testing.mesh.debug_server import FakeWatch, sources
from testing.mesh.listeners import service
from testing.mesh.objects import make, world
from tests.unit.debug.dashboard.test_fleet import connection

ROUTE = "route: [{destination: {host: web}}]"
FAULT = "fault: {abort: {percentage: {value: 30}, httpStatus: 500}}"
TO = "to: [{operation: {paths: [/v2/*]}}]"


def log_of(kind: str, action: Literal["add", "update"] = "add") -> ChangeLog:
    changes = ChangeLog()
    group = "security.istio.io" if kind == "AuthorizationPolicy" else "networking.istio.io"
    changes.record(1, [ChangedObject(action, group, kind, "a", "x")], 1, 0, 0)
    return changes


@pytest.mark.parametrize(
    ("kind", "spec", "text"),
    [
        ("VirtualService", f"{{hosts: [web], http: [{{{ROUTE}, timeout: 25s, retries: {{attempts: 5}}}}]}}", "timeout 25s; 5 retries"),
        ("VirtualService", f"{{hosts: [web], http: [{{{ROUTE}, {FAULT}}}]}}", "aborts 30 % of the requests with 500"),
        ("AuthorizationPolicy", f"{{action: DENY, rules: [{{{TO}}}]}}", "denies /v2/*"),
        ("AuthorizationPolicy", f"{{action: DENY, rules: [{{from: [{{source: {{namespaces: [b]}}}}]}}, {{{TO}}}]}}", "denies every request of some callers and more"),
        ("AuthorizationPolicy", "{}", "denies every request"),
        ("Sidecar", '{egress: [{hosts: ["./*"]}]}', "hides 1 service from 1 proxy"),
    ],
)  # fmt: skip
async def test_added_object_has_a_phrase(kind: str, spec: str, text: str) -> None:
    other = service("web", "[{name: http, port: 80}]")
    other["metadata"]["namespace"] = "b"
    mesh = world(other, make(kind, "x", spec, "a"))
    client = connection("one.a", cds=FakeWatch())
    client.proxy_key = mesh.connect(client.proxy)
    pages = sources(mesh.mesh, client)
    assert await gists_of_added(pages, log_of(kind)) == {f"{kind} a/x": text}
    assert await gists_of_added(pages, log_of(kind, "update")) == {}


async def test_virtual_service_of_a_tcp_port_has_no_phrase() -> None:
    mesh = world(
        service("web", "[{name: tcp, port: 80}]"),
        make("VirtualService", "x", f"{{hosts: [web], http: [{{{ROUTE}, {FAULT}}}]}}"),
    )
    assert await gists_of_added(sources(mesh.mesh), log_of("VirtualService")) == {}


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("VirtualService", f"{{hosts: [web], http: [{{{ROUTE}}}]}}"),
        ("AuthorizationPolicy", f"{{rules: [{{{TO}}}]}}"),
        ("Sidecar", '{egress: [{hosts: ["*/*"]}]}'),
    ],
)
async def test_other_objects_have_none(kind: str, spec: str) -> None:
    assert await gists_of_added(sources(world(make(kind, "x", spec, "a")).mesh), log_of(kind)) == {}
    assert await gists_of_added(sources(world().mesh), log_of(kind)) == {}

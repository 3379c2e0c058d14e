"""A workload in short: what it serves, how it is reached, which policies it has."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from pilot.cli.ctl import proxy_status
from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import pilotctl
from pilot.debug.describe import describe
from pilot.debug.page import Refused
from testing.mesh.debug_server import FakeConnection, sources
from testing.mesh.listeners import WEB_POD, service
from testing.mesh.objects import Plain, make, world
from testing.mesh.world import proxy

WEB = service("web", "[{name: http, port: 80, targetPort: 8080}]")
RULE = make(
    "DestinationRule",
    "web",
    "{host: web, subsets: [{name: all, labels: {app: web}}, {name: none, labels: {app: other}}]}",
)
ROUTE = make("VirtualService", "web", "{hosts: [web], http: [{route: [{destination: {host: web}}]}]}")
STRICT = make("PeerAuthentication", "default", "{mtls: {mode: STRICT}}")
GATEWAY = make(
    "Gateway",
    "front",
    "{selector: {istio: gate}, servers: [{hosts: ['*'], port: {number: 80, name: http, protocol: HTTP}}]}",
)
BOUND = make(
    "VirtualService",
    "shop",
    "{hosts: [shop.example], gateways: [front], http: [{route: [{destination: {host: web}}]}]}",
)


def described(
    *objects: Plain, kind: str = "sidecar", name: str = "web-0", ip: str = "10.1.0.1", **metadata: Any
) -> dict[str, Any]:
    made = world(*objects)
    connected = proxy(kind, name, "a", ip, **metadata)
    found: dict[str, Any] = describe(
        sources(made.mesh, FakeConnection(f"{name}.a-1", made.connect(connected), connected)), {"proxyID": name}
    )
    return found


def printed(found: dict[str, Any]) -> str:
    with mock.patch.object(PageClient, "get", return_value=found):
        result = CliRunner().invoke(pilotctl, ["describe", "web"])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_sidecar_has_services_with_routes_rules_and_the_mode_of_its_ports() -> None:
    found = described(WEB, WEB_POD, RULE, ROUTE, STRICT)
    assert [(s["host"], s["port"], s["targetPort"], s["mutualTls"]) for s in found["services"]] == [
        ("web.a.svc.cluster.local", 80, 8080, "STRICT")
    ]
    (served,) = found["services"]
    assert (served["virtualServices"], served["destinationRules"], served["subsets"]) == (["a/web"], ["a/web"], ["all"])
    assert found["policies"] == {"PeerAuthentication": ["a/default"]}
    text = printed(found).splitlines()
    assert text[3].split() == ["web.a.svc.cluster.local", "80", "HTTP", "8080", "STRICT", "a/web", "a/web", "all"]
    assert text[-1].split() == ["PeerAuthentication", "a/default"]


def test_a_router_has_the_gateways_that_select_it() -> None:
    found = described(GATEWAY, BOUND, WEB, kind="router", name="gate", ip="10.9.0.9", labels={"istio": "gate"})
    assert found["gateways"] == [{"gateway": "a/front", "virtualServices": ["a/shop"]}]
    assert printed(found).splitlines()[3].split() == ["a/front", "a/shop"]


def test_one_that_nothing_is_for() -> None:
    assert printed(described()).splitlines()[2:] == ["No service selects it.", "", "No policy applies to it."]
    assert "No Gateway selects it." in printed(described(kind="router"))


def test_one_that_is_not_connected() -> None:
    with pytest.raises(Refused):
        describe(sources(world().mesh), {"proxyID": "web-0"})


def test_a_status_is_drawn_again_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with mock.patch.object(PageClient, "get", return_value=[]):
        result = CliRunner().invoke(pilotctl, ["proxy-status", "--watch"])
    assert result.output.count("No proxy is connected") == 2
    assert looks == [proxy_status.SECONDS] * 2

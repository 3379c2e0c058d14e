"""A stock Envoy as a gateway: authorization for HTTP and TCP, and routes by token claims."""

from __future__ import annotations

import json
import pathlib
import time
from collections.abc import Iterator

import pytest
import yaml

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.clients.mesh_client import MeshClient, MeshRequest
from testing.mesh.objects import Plain, make
from testing.processes.agent_stub import Root
from testing.processes.guarded_workload import Echo
from testing.processes.process import ControlPlane, Envoy, eventually, free_port
from testing.servers.backends import Backend
from testing.servers.key_servers import Issuer

LABELS = {"istio": "edge", "gateway.networking.k8s.io/gateway-name": "front"}


class Edge:
    """A gateway with an HTTP and a TCP port, in front of two HTTP servers and a TCP server."""

    def __init__(self, work: pathlib.Path) -> None:
        self.folder = work / "config"
        self.folder.mkdir()
        self.http, self.tcp = free_port(), free_port()
        self.usual, self.beta, self.echo = Backend("usual"), Backend("beta"), Echo()
        self.issuer = Issuer("https://issuer.test")
        (self.folder / "base.yaml").write_text(yaml.safe_dump_all(self._base()))
        self.plane = ControlPlane(work, self.folder)
        self.plane.wait_ready()
        self.client = MeshClient(Root(), work)
        self.envoy = Envoy(
            work,
            ProxyNode(type="router", name="edge-0", namespace="edge", ip="10.99.0.2", labels=LABELS),
            self.plane.xds,
        )
        self._round = 0

    def _base(self) -> list[Plain]:
        servers = [
            {"port": {"number": number, "name": name, "protocol": protocol}, "hosts": ["*"], "bind": "127.0.0.1"}
            for name, number, protocol in (("http", self.http, "HTTP"), ("tcp", self.tcp, "TCP"))
        ]
        hosts = [("usual", self.usual.port, "HTTP"), ("beta", self.beta.port, "HTTP"), ("echo", self.echo.port, "TCP")]
        entries = [
            make(
                "ServiceEntry",
                name,
                json.dumps(
                    {
                        "hosts": [f"{name}.test"],
                        "resolution": "STATIC",
                        "location": "MESH_EXTERNAL",
                        "ports": [{"number": 80, "name": "p", "protocol": protocol}],
                        "endpoints": [{"address": "127.0.0.1", "ports": {"p": port}}],
                    }
                ),
                "edge",
            )
            for name, port, protocol in hosts
        ]
        routes = [
            {
                "match": [{"headers": {"@request.auth.claims.groups": {"exact": "testers"}}}],
                "route": [{"destination": {"host": "beta.test"}}],
            },
            {
                "match": [{"headers": {"@request.auth.claims.org.unit": {"prefix": "lab"}}}],
                "route": [{"destination": {"host": "beta.test"}}],
            },
            {
                "match": [{"withoutHeaders": {"@request.auth.claims.sub": {}}, "uri": {"prefix": "/own"}}],
                "directResponse": {"status": 418},
            },
            {"route": [{"destination": {"host": "usual.test"}}]},
        ]
        tcp = [
            {"match": [{"port": self.tcp}], "route": [{"destination": {"host": "echo.test", "port": {"number": 80}}}]}
        ]
        gateway = make("Gateway", "front", json.dumps({"selector": {"istio": "edge"}, "servers": servers}), "edge")
        virtual_service = {"hosts": ["*"], "gateways": ["front"], "http": routes, "tcp": tcp}
        return [gateway, *entries, make("VirtualService", "all", json.dumps(virtual_service), "edge")]

    def apply(self, *policies: tuple[str, str]) -> None:
        """Replace the policies of the gateway, and wait until they are active in its Envoy."""
        self._round += 1
        mark = f"round-{self._round}"
        marker = ("AuthorizationPolicy", "action: AUDIT, rules: [{from: [{source: {namespaces: [nowhere]}}]}]")
        objects = [
            make(kind, f"{mark}-{index}", f"{{{spec}}}", "edge")
            for index, (kind, spec) in enumerate((marker, *policies))
        ]
        (self.folder / "policies.next").write_text(yaml.safe_dump_all(objects))
        (self.folder / "policies.next").rename(self.folder / "policies.yaml")

        def active() -> bool:
            self.envoy.check_alive()
            listeners = json.loads(self.envoy.get("/config_dump?resource=dynamic_listeners")).get("configs", ())
            return (
                sum(f"policy[{mark}-0]" in json.dumps(listener.get("active_state", {})) for listener in listeners) == 2
            )

        eventually(active, 30, f"policies of {mark} in Envoy: {self.envoy.tail(5)}")

    def status(self, path: str = "/", host: str = "a.test", source: str = "127.0.0.1", **headers: str) -> int:
        return self.client.status(
            self.http, MeshRequest(identity="", path=path, host=host, source=source, headers=headers)
        )

    def backend_for(self, **claims: object) -> str:
        """Return the backend for a request with a token with these claims."""
        token = self.issuer.token(claims, time.time())
        answer = self.client.answer(
            self.http, MeshRequest(identity="", host="a.test", headers={"Authorization": f"Bearer {token}"})
        )
        return str(json.loads(answer.partition("\r\n\r\n")[2])["backend"])

    def connects(self, source: str = "127.0.0.1") -> bool:
        return self.client.connects(self.tcp, MeshRequest(identity="", tcp=True, source=source))

    def stop(self) -> None:
        self.envoy.stop()
        self.plane.stop()
        for server in (self.usual, self.beta, self.echo):
            server.stop()


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Edge]:
    env = Edge(tmp_path_factory.mktemp("edge"))
    try:
        env.apply()
        eventually(lambda: env.status() == 200, 20, "the gateway answers")
        yield env
        assert env.envoy.rejected() == {}, env.envoy.tail()
    finally:
        env.stop()


def test_allowed_addresses_over_http_and_tcp(edge: Edge) -> None:
    edge.apply(
        (
            "AuthorizationPolicy",
            "selector: {matchLabels: {istio: edge}}, rules: [{from: [{source: {ipBlocks: [127.0.0.1]}}]}]",
        )
    )
    assert (edge.status(), edge.status(source="127.0.0.2")) == (200, 403)
    assert (edge.connects(), edge.connects(source="127.0.0.2")) == (True, False)


def test_policy_for_the_gateway_denies_a_host(edge: Edge) -> None:
    target = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: front}]"
    rules = f"rules: [{{to: [{{operation: {{hosts: [admin.test], ports: ['{edge.http}']}}}}]}}]"
    edge.apply(("AuthorizationPolicy", f"{target}, action: DENY, {rules}"))
    assert (edge.status(), edge.status(host="ADMIN.test"), edge.connects()) == (200, 403, True)


def test_policy_for_another_gateway_has_no_effect(edge: Edge) -> None:
    target = "targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: other}]"
    edge.apply(("AuthorizationPolicy", f"{target}, action: DENY, rules: [{{}}]"))
    assert (edge.status(), edge.connects()) == (200, True)


def test_routes_by_token_claims(edge: Edge) -> None:
    edge.apply(("RequestAuthentication", f"jwtRules: [{{issuer: '{edge.issuer.name}', jwks: '{edge.issuer.keys}'}}]"))
    assert edge.backend_for() == "usual"
    assert edge.backend_for(groups="testers") == "beta"
    assert edge.backend_for(groups=["users", "testers"]) == "beta"
    assert edge.backend_for(groups=["users"]) == "usual"
    assert edge.backend_for(org={"unit": "lab-1"}) == "beta"
    assert edge.backend_for(org={"unit": "shop"}) == "usual"
    assert edge.status("/own") == 418
    forged_token = Issuer(edge.issuer.name).token({"groups": "testers"}, time.time())
    assert edge.status(Authorization=f"Bearer {forged_token}") == 401

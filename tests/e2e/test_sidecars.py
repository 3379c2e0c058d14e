"""Two workloads in separate network namespaces, each with a stock Envoy that captures its traffic."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.mesh.books_service import books
from testing.processes.agent_stub import Agent, Root
from testing.processes.netns import Host, Network, capture
from testing.processes.process import ControlPlane, Envoy, eventually
from testing.servers.backends import Backend, HttpResponse, send_request

NODE, CLIENT, SERVER, VIP, ADMIN = "10.77.0.1", "10.77.1.1", "10.77.1.2", "10.77.96.10", "127.0.0.1:15000"
OBJECTS = (
    books(VIP, SERVER)
    + """---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: books, namespace: shop}
spec:
  hosts: [books]
  http:
  - match: [{uri: {prefix: /new}}]
    rewrite: {uri: /stock}
    route: [{destination: {host: books}}]
  - route: [{destination: {host: books}}]
"""
)


class Pair:
    """Client and server pods on a bridge, with control plane and certificates."""

    def __init__(self, work: pathlib.Path) -> None:
        self.network = Network(NODE)
        self.client, self.server = self.network.attach(CLIENT), self.network.attach(SERVER)
        (work / "config").mkdir()
        (work / "config" / "objects.yaml").write_text(OBJECTS)
        self.pilot = ControlPlane(work, work / "config", host=NODE, join=self.network.node.join)
        self.network.node.run(self.pilot.wait_ready)
        root = Root()
        self.agents = [
            Agent(root, f"spiffe://cluster.local/ns/shop/sa/{name}", work / f"{name}.sock") for name in ("web", "books")
        ]
        self.backend = self.server.run(lambda: Backend("books", host=SERVER, port=8080))
        self.envoys = {
            name: self._sidecar(work, name, host, ip, agent)
            for name, host, ip, agent in zip(
                ("web", "books"), (self.client, self.server), (CLIENT, SERVER), self.agents, strict=True
            )
        }
        for host in (self.client, self.server):
            host.run(capture)

    def _sidecar(self, work: pathlib.Path, name: str, host: Host, ip: str, agent: Agent) -> Envoy:
        node = ProxyNode(
            type="sidecar", name=f"{name}-0", namespace="shop", ip=ip, labels={"app": name}, service_account=name
        )
        return Envoy(work, node, self.pilot.xds, agent.socket, admin=ADMIN, join=host.join_as_proxy)

    def ask(self, path: str, **headers: str) -> HttpResponse:
        """Send a request from the client application to the service's virtual IP, through both sidecars."""
        return self.client.run(lambda: send_request((VIP, 80), path, host="books", headers=headers))

    def is_ready(self) -> bool:
        """Return whether a request succeeds. The timeout is short, because a request during startup may never be answered."""
        for envoy in self.envoys.values():
            envoy.check_alive()
        return self.client.run(lambda: send_request((VIP, 80), "/", host="books", seconds=2)).status == 200

    def stats(self, name: str, pattern: str) -> dict[str, int]:
        host = self.client if name == "web" else self.server
        return host.run(lambda: self.envoys[name].stats(pattern))

    def stop(self) -> None:
        for envoy in self.envoys.values():
            envoy.stop()
        self.pilot.stop()
        for agent in self.agents:
            agent.stop()
        self.backend.stop()
        self.network.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    env = Pair(tmp_path_factory.mktemp("pair"))
    try:
        eventually(env.is_ready, 60, "the server answers through both sidecars")
        yield env
        for name in ("web", "books"):
            assert {k: v for k, v in env.stats(name, "update_rejected").items() if v} == {}, env.envoys[name].tail()
        assert env.network.node.run(lambda: env.pilot.metric("pilot_total_xds_rejects")) == 0
    finally:
        env.stop()


def test_request_passes_both_sidecars(pair: Pair) -> None:
    response = pair.ask("/hello")
    assert response.json["backend"] == "books"
    assert response.headers["server"] == "envoy" or response.headers["server"] == "istio-envoy"
    assert pair.stats("web", "http.outbound_0.0.0.0_80.*rq_2xx")
    assert any(pair.stats("books", "http.inbound.*rq_2xx").values())


def test_request_is_encrypted_with_workload_certificates(pair: Pair) -> None:
    handshakes = sum(pair.stats("books", "ssl.handshake").values())
    pair.ask("/")
    headers = pair.backend.requests[-1].headers
    assert "spiffe://cluster.local/ns/shop/sa/web" in headers["x-forwarded-client-cert"]
    assert sum(pair.stats("books", "ssl.handshake").values()) >= handshakes >= 0
    assert sum(pair.stats("books", "ssl.handshake").values()) > 0


def test_virtual_service_applies_at_the_client(pair: Pair) -> None:
    assert pair.ask("/new/arrivals").json["path"] == "/stock/arrivals"


def test_plaintext_from_outside_is_accepted_while_permissive(pair: Pair) -> None:
    response = pair.network.node.run(lambda: send_request((SERVER, 8080), "/plain"))
    assert response.json["path"] == "/plain"
    assert "x-forwarded-client-cert" not in pair.backend.requests[-1].headers

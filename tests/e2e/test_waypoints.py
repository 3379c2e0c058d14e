"""A stock Envoy as a waypoint: it receives HBONE from gateways, applies routes and policies, and sends HBONE to a sidecar."""

from __future__ import annotations

import contextlib
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.processes.agent_stub import Agent, Root
from testing.processes.netns import Host, Network
from testing.processes.process import ControlPlane, Envoy, eventually
from testing.servers.backends import Backend, HttpResponse, send_request

NODE, CLIENTS, WAYPOINT, BOOKS, VIP = "10.79.0.1", "10.79.1.1", "10.79.1.2", "10.79.1.3", "10.79.96.10"
GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
TD = "spiffe://cluster.local/ns"
OBJECTS = f"""
kind: Namespace
apiVersion: v1
metadata: {{name: shop, labels: {{istio.io/use-waypoint: waypoint}}}}
---
kind: GatewayClass
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: istio-waypoint}}
spec: {{controllerName: istio.io/mesh-controller}}
---
kind: Gateway
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: waypoint, namespace: shop}}
spec: {{gatewayClassName: istio-waypoint, listeners: [{{name: mesh, port: 15008, protocol: HBONE}}]}}
---
kind: Service
apiVersion: v1
metadata: {{name: waypoint, namespace: shop, labels: {{{GATEWAY_NAME}: waypoint, gateway.istio.io/managed: istio.io-mesh-controller}}}}
spec: {{clusterIP: 10.79.96.11, selector: {{{GATEWAY_NAME}: waypoint}}, ports: [{{name: mesh, port: 15008, appProtocol: all}}]}}
---
kind: Pod
apiVersion: v1
metadata: {{name: waypoint-0, namespace: shop, labels: {{{GATEWAY_NAME}: waypoint, gateway.istio.io/managed: istio.io-mesh-controller}}}}
spec: {{serviceAccountName: waypoint}}
status: {{podIP: {WAYPOINT}, podIPs: [{{ip: {WAYPOINT}}}], phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {{name: waypoint-1, namespace: shop, labels: {{kubernetes.io/service-name: waypoint}}}}
addressType: IPv4
endpoints: [{{addresses: [{WAYPOINT}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: waypoint-0}}}}]
ports: [{{name: mesh, port: 15008}}]
---
kind: Service
apiVersion: v1
metadata: {{name: books, namespace: shop, labels: {{istio.io/ingress-use-waypoint: 'true'}}}}
spec: {{clusterIP: {VIP}, selector: {{app: books}}, ports: [{{name: http, port: 80, targetPort: 8080}}]}}
---
kind: Pod
apiVersion: v1
metadata: {{name: books-0, namespace: shop, labels: {{app: books, networking.istio.io/tunnel: http}}}}
spec: {{serviceAccountName: books}}
status: {{podIP: {BOOKS}, podIPs: [{{ip: {BOOKS}}}], phase: Running, conditions: [{{type: Ready, status: 'True'}}]}}
---
kind: EndpointSlice
apiVersion: discovery.k8s.io/v1
metadata: {{name: books-1, namespace: shop, labels: {{kubernetes.io/service-name: books}}}}
addressType: IPv4
endpoints: [{{addresses: [{BOOKS}], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: books-0}}}}]
ports: [{{name: http, port: 8080}}]
---
kind: HTTPRoute
apiVersion: gateway.networking.k8s.io/v1
metadata: {{name: books, namespace: shop}}
spec:
  parentRefs: [{{group: '', kind: Service, name: books}}]
  rules:
  - matches: [{{path: {{type: PathPrefix, value: /old}}}}]
    filters:
    - {{type: URLRewrite, urlRewrite: {{path: {{type: ReplacePrefixMatch, replacePrefixMatch: /new}}}}}}
    - {{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: x-route, value: rewritten}}]}}}}
    backendRefs: [{{name: books, port: 80}}]
  - backendRefs: [{{name: books, port: 80}}]
---
kind: AuthorizationPolicy
apiVersion: security.istio.io/v1
metadata: {{name: books, namespace: shop}}
spec:
  targetRefs: [{{group: '', kind: Service, name: books}}]
  rules: [{{from: [{{source: {{principals: [cluster.local/ns/edge/sa/alice]}}}}], to: [{{operation: {{methods: [GET]}}}}]}}]
"""
EDGE = """---
kind: Gateway
apiVersion: networking.istio.io/v1
metadata: {{name: {name}, namespace: edge}}
spec: {{selector: {{app: {name}}}, servers: [{{port: {{number: {port}, name: http, protocol: HTTP}}, hosts: ['*']}}]}}
---
kind: VirtualService
apiVersion: networking.istio.io/v1
metadata: {{name: {name}, namespace: edge}}
spec: {{hosts: ['*'], gateways: [{name}], http: [{{route: [{{destination: {{host: books.shop.svc.cluster.local, port: {{number: 80}}}}}}]}}]}}
"""
CLOSED_PATH_POLICY = """
kind: AuthorizationPolicy
apiVersion: security.istio.io/v1
metadata: {name: gateway, namespace: shop}
spec:
  targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: waypoint}]
  action: DENY
  rules: [{to: [{operation: {paths: [/closed]}}]}]
"""


class Client(NamedTuple):
    """A gateway with its service account."""

    account: str
    port: int


ALICE, EVE = Client("alice", 8081), Client("eve", 8082)


class Mesh:
    """Two gateways on one host, a waypoint and a sidecar on separate hosts, and a control plane.

    Subclasses extend the mesh with `more` objects, service labels, settings and node metadata, and with Envoys in `add`.
    """

    mesh_config, more, services = "", "", "istio.io/ingress-use-waypoint: 'true'"
    environ: Mapping[str, str] = {}
    client_labels: Mapping[str, str] = {}
    client_metadata: Mapping[str, object] = {}
    metadata: Mapping[str, object] = {}

    def __init__(self, work: pathlib.Path) -> None:
        self.work, self._stack = work, contextlib.ExitStack()
        self.network = Network(NODE)
        self._stack.callback(self.network.stop)
        self.clients, self.waypoint, self.server = (self.network.attach(ip) for ip in (CLIENTS, WAYPOINT, BOOKS))
        self.config = work / "config"
        self.config.mkdir()
        edges = "".join(EDGE.format(name=c.account, port=c.port) for c in (ALICE, EVE))
        (self.config / "objects.yaml").write_text(
            OBJECTS.replace("istio.io/ingress-use-waypoint: 'true'", self.services) + edges + self.more
        )
        environ = {"PILOT_ENABLE_AMBIENT": "true", **self.environ}
        self.pilot = ControlPlane(
            work, self.config, self.mesh_config, host=NODE, join=self.network.node.join, environ=environ
        )
        self._stack.callback(self.pilot.stop)
        self.network.node.run(self.pilot.wait_ready)
        self.backend = self.server.run(lambda: Backend("books", host=BOOKS, port=8080))
        self._stack.callback(self.backend.stop)
        self.root = Root()
        labels = {GATEWAY_NAME: "waypoint", "gateway.istio.io/managed": "istio.io-mesh-controller"}
        hbone_metadata = {"ENABLE_HBONE": "true", **self.metadata}
        self.hosts = {"waypoint-0": self.waypoint, "books-0": self.server}
        self.envoys = {
            "waypoint-0": self._envoy(
                "waypoint", "waypoint-0", "shop", WAYPOINT, "waypoint", self.waypoint, labels, self.metadata
            ),
            "books-0": self._envoy(
                "sidecar", "books-0", "shop", BOOKS, "books", self.server, {"app": "books"}, hbone_metadata
            ),
        }
        for client in (ALICE, EVE):
            name, labels = client.account, {"app": client.account, **self.client_labels}
            self.envoys[name] = self._envoy(
                "router", name, "edge", CLIENTS, name, self.clients, labels, self.client_metadata
            )
        self.add()

    def add(self) -> None:
        """Add the Envoys of a subclass."""

    def _envoy(
        self,
        kind: str,
        name: str,
        namespace: str,
        ip: str,
        account: str,
        host: Host,
        labels: Mapping[str, str],
        metadata: Mapping[str, object],
    ) -> Envoy:
        agent = Agent(self.root, f"{TD}/{namespace}/sa/{account}", self.work / f"{name}.sock")
        self._stack.callback(agent.stop)
        node = ProxyNode(
            type=kind, name=name, namespace=namespace, ip=ip, labels=labels, service_account=account, metadata=metadata
        )
        envoy = Envoy(self.work, node, self.pilot.xds, agent.socket, join=host.join)
        self._stack.callback(envoy.stop)
        return envoy

    def ask(self, client: Client, path: str = "/", method: str = "GET") -> HttpResponse:
        """Send a request from outside the mesh to a gateway."""
        return self.clients.run(lambda: send_request((CLIENTS, client.port), path, host="books", method=method))

    def host_of(self, name: str) -> Host:
        return self.hosts.get(name, self.clients)

    def stats(self, name: str, pattern: str) -> dict[str, int]:
        return self.host_of(name).run(lambda: self.envoys[name].stats(pattern))

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    env = Mesh(tmp_path_factory.mktemp("waypoints"))
    try:
        eventually(lambda: env.ask(ALICE).status == 200, 60, "a request succeeds")
        eventually(lambda: env.ask(EVE).status == 403, 60, "the other client is denied")
        for name, envoy in env.envoys.items():
            eventually(lambda: "LIVE" in env.host_of(name).run(lambda: envoy.get("/ready")), 30, f"{name} is live")  # noqa: B023
        yield env
    finally:
        env.stop()


def test_no_configuration_is_rejected(mesh: Mesh) -> None:
    assert {name: mesh.host_of(name).run(envoy.rejected) for name, envoy in mesh.envoys.items()} == {
        name: {} for name in mesh.envoys
    }


def test_requests_pass_both_tunnels(mesh: Mesh) -> None:
    assert mesh.ask(ALICE).status == 200
    for name in ("waypoint-0", "books-0"):
        assert (
            mesh.stats(name, "^http.connect_terminate.downstream_rq_2xx$")["http.connect_terminate.downstream_rq_2xx"]
            > 0
        )
        assert mesh.stats(name, "^listener.0.0.0.0_15008.ssl.handshake$")["listener.0.0.0.0_15008.ssl.handshake"] > 0


def test_route_of_the_service_applies(mesh: Mesh) -> None:
    assert mesh.ask(ALICE, "/old/page").status == 200
    received = mesh.backend.requests[-1]
    assert (received.path, received.headers["x-route"]) == ("/new/page", "rewritten")
    assert mesh.ask(ALICE, "/page").status == 200
    assert mesh.backend.requests[-1].path == "/page"
    assert "x-route" not in mesh.backend.requests[-1].headers


def test_policy_for_the_service_sees_the_tunnel_identity(mesh: Mesh) -> None:
    assert mesh.ask(ALICE).status == 200
    assert mesh.ask(ALICE, method="POST").status == 403
    assert mesh.ask(EVE).status == 403


def test_policy_for_the_waypoint_is_added_and_removed(mesh: Mesh) -> None:
    assert mesh.ask(ALICE, "/closed").status == 200
    path = mesh.config / "policy.yaml"
    path.with_suffix(".new").write_text(CLOSED_PATH_POLICY)
    os.replace(path.with_suffix(".new"), path)
    eventually(lambda: mesh.ask(ALICE, "/closed").status == 403, 30, "the policy is in force")
    assert mesh.ask(ALICE).status == 200
    path.unlink()
    eventually(lambda: mesh.ask(ALICE, "/closed").status == 200, 30, "the policy is removed")

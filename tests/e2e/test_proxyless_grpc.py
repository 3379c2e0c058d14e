"""Proxyless gRPC clients and servers: routes, subsets, weights, and mutual TLS with the agent's certificate files."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from testing.processes.process import ControlPlane, eventually, free_port
from testing.processes.sidecar import REPOSITORY, Sidecar
from testing.security.certificates import DAY, intermediate, root, write_plugged_in
from testing.security.tokens import write_keys

SIGNER = intermediate(root(40, now=datetime.datetime.now(datetime.UTC)), 41, lifetime=400 * DAY)
TARGET = "xds:///echo.shop.svc.cluster.local:7070"
SECURE = "xds:///secure.shop.svc.cluster.local:7071"
CONFIG = """
apiVersion: v1
kind: Service
metadata: {{name: echo, namespace: shop}}
spec: {{clusterIP: 10.1.0.1, selector: {{app: echo}}, ports: [{{name: grpc, port: 7070}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: echo-v1, namespace: shop, labels: {{app: echo, version: v1}}}}
spec: {{}}
status: {{podIP: 127.0.0.1}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: echo-v1, namespace: shop, labels: {{kubernetes.io/service-name: echo}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.1], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: echo-v1, namespace: shop}}}}]
ports: [{{name: grpc, port: {v1}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: echo-v2, namespace: shop, labels: {{app: echo, version: v2}}}}
spec: {{}}
status: {{podIP: 127.0.0.2}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: echo-v2, namespace: shop, labels: {{kubernetes.io/service-name: echo}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.2], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: echo-v2, namespace: shop}}}}]
ports: [{{name: grpc, port: {v2}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: echo, namespace: shop}}
spec:
  host: echo.shop.svc.cluster.local
  subsets: [{{name: v1, labels: {{version: v1}}}}, {{name: v2, labels: {{version: v2}}}}]
---
apiVersion: v1
kind: Service
metadata: {{name: secure, namespace: shop}}
spec: {{clusterIP: 10.1.0.2, selector: {{app: secure}}, ports: [{{name: grpc, port: 7071, targetPort: {secure}}}]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: secure-0, namespace: shop, labels: {{app: secure, security.istio.io/tlsMode: istio}}}}
spec: {{serviceAccountName: secure}}
status: {{podIP: 127.0.0.3}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: secure, namespace: shop, labels: {{kubernetes.io/service-name: secure}}}}
addressType: IPv4
endpoints: [{{addresses: [127.0.0.3], conditions: {{ready: true}}, targetRef: {{kind: Pod, name: secure-0, namespace: shop}}}}]
ports: [{{name: grpc, port: {secure}}}]
---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {{name: secure, namespace: shop}}
spec: {{host: secure.shop.svc.cluster.local, trafficPolicy: {{tls: {{mode: ISTIO_MUTUAL}}}}}}
---
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: secure, namespace: shop}}
spec: {{selector: {{matchLabels: {{app: secure}}}}, mtls: {{mode: STRICT}}}}
---
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {{name: secure, namespace: shop}}
spec:
  selector: {{matchLabels: {{app: secure}}}}
  rules: [{{from: [{{source: {{principals: [cluster.local/ns/shop/sa/client]}}}}], to: [{{operation: {{paths: [/test.Echo/Say]}}}}]}}]
"""
ROUTES = """
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: echo, namespace: shop}
spec:
  hosts: [echo.shop.svc.cluster.local]
  http:
"""
PEER = os.environ.get("GRPC_PEER", "").split() or [sys.executable, "-m", "testing.clients.grpc_peer"]
"""The command of a peer. GRPC_PEER may name one that uses another implementation of gRPC, such as grpc-go or grpc-java."""


class Peer:
    """A process of `testing.clients.grpc_peer`, controlled by lines of JSON."""

    def __init__(self, arguments: list[str], bootstrap: pathlib.Path | None, log: pathlib.Path) -> None:
        environ = {**os.environ, "PYTHONPATH": str(REPOSITORY), "GRPC_XDS_BOOTSTRAP": str(bootstrap or "/dev/null")}
        with log.open("wb") as errors:
            self._child = subprocess.Popen(
                [*PEER, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
                text=True,
            )

    def read(self) -> str:
        assert self._child.stdout is not None
        return self._child.stdout.readline()

    def call(self, target: str = TARGET, **options: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"target": target, **options}) + "\n")
        self._child.stdin.flush()
        response: dict[str, Any] = json.loads(self.read())
        return response

    def stop(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(10)


class Mesh:
    """A control plane, agents without Envoy, two versions of a server, one server with mutual TLS, and two clients."""

    def __init__(self, work: pathlib.Path, stack: contextlib.ExitStack) -> None:
        """`stack` stops all processes, even after an incomplete start."""
        self._stack = stack
        self.config = work / "config"
        self.config.mkdir()
        ports = {"v1": free_port("127.0.0.1"), "v2": free_port("127.0.0.2"), "secure": free_port("127.0.0.3")}
        (self.config / "mesh.yaml").write_text(CONFIG.format(**ports))
        keys = write_keys(work / "keys.json")
        cacerts = work / "cacerts"
        cacerts.mkdir()
        write_plugged_in(cacerts, SIGNER)
        environ = {"PILOT_TOKEN_KEYS": str(keys), "PILOT_DEBOUNCE_AFTER": "10ms", "ROOT_CA_DIR": str(cacerts)}
        self.pilot = ControlPlane(work, self.config, environ=environ)
        self._stack.callback(self.pilot.stop)
        self.pilot.wait_ready()
        for account, ip in (("client", "127.0.0.5"), ("secure", "127.0.0.3")):
            self._agent(work, account, ip)
        for account in ("client", "secure"):
            files = [self.bootstrap(account), work / account / "cert-chain.pem"]
            eventually(
                lambda files=files: all(path.exists() for path in files),
                30,
                f"the agent of {account} has written its files",
            )
        plaintext_servers = self._peer(
            ["serve", f"v1=127.0.0.1:{ports['v1']}", f"v2=127.0.0.2:{ports['v2']}"], None, work / "servers.log"
        )
        secure_server = self._peer(
            ["xds", f"secure=127.0.0.3:{ports['secure']}"], self.bootstrap("secure"), work / "secure.log"
        )
        self.client = self._peer(["call"], self.bootstrap("client"), work / "client.log")
        self.other = self._peer(["call"], self.bootstrap("secure"), work / "other.log")
        for peer in (plaintext_servers, secure_server):
            assert peer.read() == "serving\n"

    def _agent(self, work: pathlib.Path, account: str, ip: str) -> Sidecar:
        folder = work / account
        environ = {"DISABLE_ENVOY": "true", "ISTIO_META_GENERATOR": "grpc", "OUTPUT_CERTS": str(folder)}
        config = {"statusPort": free_port(), "proxyAdminPort": free_port()}
        agent = Sidecar(folder, account, ip, self.pilot.secure_xds, SIGNER.roots_pem, config=config, environ=environ)
        self._stack.callback(agent.stop)
        return agent

    def bootstrap(self, account: str) -> pathlib.Path:
        return self.config.parent / account / "etc" / "istio" / "proxy" / "grpc-bootstrap.json"

    def _peer(self, arguments: list[str], bootstrap: pathlib.Path | None, log: pathlib.Path) -> Peer:
        peer = Peer(arguments, bootstrap, log)
        self._stack.callback(peer.stop)
        return peer

    def route(self, *rules: str) -> None:
        """Replace the rules of the VirtualService, each given as one line of YAML."""
        (self.config / "routes.yaml").write_text(ROUTES + "".join(f"  - {rule}\n" for rule in rules))


def to(subset: str, weight: int = 100) -> str:
    return f"{{destination: {{host: echo.shop.svc.cluster.local, subset: {subset}}}, weight: {weight}}}"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with contextlib.ExitStack() as stack:
        yield Mesh(tmp_path_factory.mktemp("grpc"), stack)


def test_round_robin_without_rules(mesh: Mesh) -> None:
    (mesh.config / "routes.yaml").unlink(missing_ok=True)
    eventually(lambda: mesh.client.call(calls=10)["names"] == {"v1": 5, "v2": 5}, 20, "both get half of the calls")


def test_route_to_a_subset(mesh: Mesh) -> None:
    for subset in ("v2", "v1"):
        mesh.route(f"{{route: [{to(subset)}]}}")
        eventually(lambda: mesh.client.call(calls=10)["names"] == {subset: 10}, 20, f"{subset} gets all calls")  # noqa: B023


def test_weighted_routes(mesh: Mesh) -> None:
    mesh.route(f"{{route: [{to('v1', 80)}, {to('v2', 20)}]}}")
    eventually(
        lambda: 130 <= mesh.client.call(calls=1000)["names"].get("v2", 0) <= 270, 20, "v2 gets a fifth of the calls"
    )


def test_headers_and_methods_select_a_route(mesh: Mesh) -> None:
    mesh.route(
        f"{{match: [{{headers: {{user: {{exact: tester}}}}}}], route: [{to('v2')}]}}",
        f"{{match: [{{uri: {{exact: /test.Echo/New}}}}], route: [{to('v2')}]}}",
        f"{{route: [{to('v1')}]}}",
    )
    eventually(
        lambda: mesh.client.call(calls=5, headers={"user": "tester"})["names"] == {"v2": 5},
        20,
        "the header selects a route",
    )
    # Rules of the previous test may send all calls to v2, so only a response from v1 proves that the new ones are active.
    eventually(
        lambda: mesh.client.call(calls=5, headers={"user": "else"})["names"] == {"v1": 5},
        20,
        "the last rule matches all other calls",
    )
    assert mesh.client.call(calls=5, headers={"user": "tester"})["names"] == {"v2": 5}
    assert mesh.client.call(calls=5, method="New")["names"] == {"v2": 5}
    assert mesh.client.call(calls=5)["names"] == {"v1": 5}


def test_route_timeout(mesh: Mesh) -> None:
    # At least 2 s, because on some machines gRPC's clock runs up to a second ahead and shortens the timeout.
    mesh.route(f"{{timeout: 2s, route: [{to('v2')}]}}")
    slow = {"sleep": "5"}
    eventually(
        lambda: mesh.client.call(headers=slow, timeout=30)["errors"] == {"DEADLINE_EXCEEDED": 1},
        40,
        "the route's timeout ends a call",
    )


def test_route_retries(mesh: Mesh) -> None:
    mesh.route(f"{{retries: {{attempts: 3, retryOn: unavailable}}, route: [{to('v1')}]}}")
    eventually(lambda: mesh.client.call(headers={"fail": "3"})["attempts"] == "4", 20, "the fourth attempt is answered")
    assert mesh.client.call(headers={"fail": "4"})["errors"] == {"UNAVAILABLE": 1}
    mesh.route(f"{{retries: {{attempts: 0}}, route: [{to('v1')}]}}")
    eventually(
        lambda: mesh.client.call(headers={"fail": "1"})["errors"] == {"UNAVAILABLE": 1}, 20, "nothing is retried"
    )


def test_short_host_names(mesh: Mesh) -> None:
    mesh.route(f"{{route: [{to('v2')}]}}")
    for target in ("xds:///echo:7070", "xds:///echo.shop:7070"):
        eventually(lambda: mesh.client.call(target, calls=3)["names"] == {"v2": 3}, 20, target)  # noqa: B023


def test_mutual_tls_and_authorization(mesh: Mesh) -> None:
    eventually(lambda: mesh.client.call(SECURE, secure=True)["names"] == {"secure": 1}, 30, "the client is allowed")
    assert mesh.client.call(SECURE, secure=True, method="Other")["errors"] == {"PERMISSION_DENIED": 1}
    assert mesh.other.call(SECURE, secure=True)["errors"] == {"PERMISSION_DENIED": 1}
    assert mesh.client.call(SECURE, secure=False, timeout=3)["errors"].keys() <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"}

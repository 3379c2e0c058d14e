"""gRPC's own xDS client and server follow the mesh's configuration without a proxy: routes, subsets, weights, and mutual TLS by the agent's files."""

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

SIGNER = intermediate(root(40, now=datetime.datetime.now(datetime.UTC)), 41, life=400 * DAY)
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
PEER = [sys.executable, "-m", "testing.clients.grpc_peer"]


class Peer:
    """A process of `testing.clients.grpc_peer` that is asked by lines."""

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

    def call(self, target: str = TARGET, **said: Any) -> dict[str, Any]:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps({"target": target, **said}) + "\n")
        self._child.stdin.flush()
        answer: dict[str, Any] = json.loads(self.read())
        return answer

    def stop(self) -> None:
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait(10)


class Mesh:
    """A control plane, agents without Envoys, servers of two versions and one with mutual TLS, and clients that run as `client` and as `secure`."""

    def __init__(self, work: pathlib.Path, ends: contextlib.ExitStack) -> None:
        """`ends` ends what is started here, also where not all of it starts."""
        self._ends = ends
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
        self._ends.callback(self.pilot.stop)
        self.pilot.wait_ready()
        for account, ip in (("client", "127.0.0.5"), ("secure", "127.0.0.3")):
            self._agent(work, account, ip)
        for account in ("client", "secure"):
            written = [self.bootstrap(account), work / account / "cert-chain.pem"]
            eventually(
                lambda written=written: all(path.exists() for path in written),
                30,
                f"the agent of {account} has written its files",
            )
        plain = self._peer(
            ["serve", f"v1=127.0.0.1:{ports['v1']}", f"v2=127.0.0.2:{ports['v2']}"], None, work / "servers.log"
        )
        server = self._peer(
            ["xds", f"secure=127.0.0.3:{ports['secure']}"], self.bootstrap("secure"), work / "secure.log"
        )
        self.client = self._peer(["call"], self.bootstrap("client"), work / "client.log")
        self.other = self._peer(["call"], self.bootstrap("secure"), work / "other.log")
        for peer in (plain, server):
            assert peer.read() == "serving\n"

    def _agent(self, work: pathlib.Path, account: str, ip: str) -> Sidecar:
        folder = work / account
        environ = {"DISABLE_ENVOY": "true", "ISTIO_META_GENERATOR": "grpc", "OUTPUT_CERTS": str(folder)}
        config = {"statusPort": free_port(), "proxyAdminPort": free_port()}
        agent = Sidecar(folder, account, ip, self.pilot.secure_xds, SIGNER.roots_pem, config=config, environ=environ)
        self._ends.callback(agent.stop)
        return agent

    def bootstrap(self, account: str) -> pathlib.Path:
        return self.config.parent / account / "etc" / "istio" / "proxy" / "grpc-bootstrap.json"

    def _peer(self, arguments: list[str], bootstrap: pathlib.Path | None, log: pathlib.Path) -> Peer:
        peer = Peer(arguments, bootstrap, log)
        self._ends.callback(peer.stop)
        return peer

    def route(self, *rules: str) -> None:
        """Routes calls by the VirtualService's rules, each as YAML in one line; a rule that only this state has ends them."""
        (self.config / "routes.yaml").write_text(ROUTES + "".join(f"  - {rule}\n" for rule in rules))


def to(subset: str, weight: int = 100) -> str:
    return f"{{destination: {{host: echo.shop.svc.cluster.local, subset: {subset}}}, weight: {weight}}}"


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    with contextlib.ExitStack() as ends:
        yield Mesh(tmp_path_factory.mktemp("grpc"), ends)


def test_without_rules_the_endpoints_take_turns(mesh: Mesh) -> None:
    (mesh.config / "routes.yaml").unlink(missing_ok=True)
    eventually(lambda: mesh.client.call(calls=10)["names"] == {"v1": 5, "v2": 5}, 20, "both have half of the calls")


def test_a_subset_has_all_calls(mesh: Mesh) -> None:
    for subset in ("v2", "v1"):
        mesh.route(f"{{route: [{to(subset)}]}}")
        eventually(lambda: mesh.client.call(calls=10)["names"] == {subset: 10}, 20, f"{subset} has all calls")  # noqa: B023


def test_weights_divide_the_calls(mesh: Mesh) -> None:
    mesh.route(f"{{route: [{to('v1', 80)}, {to('v2', 20)}]}}")
    eventually(
        lambda: 130 <= mesh.client.call(calls=1000)["names"].get("v2", 0) <= 270, 20, "a fifth of the calls goes to v2"
    )


def test_headers_and_methods_choose_a_route(mesh: Mesh) -> None:
    mesh.route(
        f"{{match: [{{headers: {{user: {{exact: tester}}}}}}], route: [{to('v2')}]}}",
        f"{{match: [{{uri: {{exact: /test.Echo/New}}}}], route: [{to('v2')}]}}",
        f"{{route: [{to('v1')}]}}",
    )
    eventually(
        lambda: mesh.client.call(calls=5, headers={"user": "tester"})["names"] == {"v2": 5}, 20, "the header chooses"
    )
    # The rules of the test before may have sent all calls to v2, so that only this answer says that the new ones are there.
    eventually(
        lambda: mesh.client.call(calls=5, headers={"user": "else"})["names"] == {"v1": 5},
        20,
        "the last rule takes the rest",
    )
    assert mesh.client.call(calls=5, headers={"user": "tester"})["names"] == {"v2": 5}
    assert mesh.client.call(calls=5, method="New")["names"] == {"v2": 5}
    assert mesh.client.call(calls=5)["names"] == {"v1": 5}


def test_the_timeout_of_a_route_ends_calls(mesh: Mesh) -> None:
    # Not less than 2 s: on some machines gRPC takes its cycle counter to be ahead, and a timeout to begin a second before its call.
    mesh.route(f"{{timeout: 2s, route: [{to('v2')}]}}")
    slow = {"sleep": "5"}
    eventually(
        lambda: mesh.client.call(headers=slow, timeout=30)["errors"] == {"DEADLINE_EXCEEDED": 1},
        40,
        "the route's timeout ends a call",
    )


def test_retries_are_made_as_often_as_the_route_says(mesh: Mesh) -> None:
    mesh.route(f"{{retries: {{attempts: 3, retryOn: unavailable}}, route: [{to('v1')}]}}")
    eventually(lambda: mesh.client.call(headers={"fail": "3"})["attempts"] == "4", 20, "the fourth attempt is answered")
    assert mesh.client.call(headers={"fail": "4"})["errors"] == {"UNAVAILABLE": 1}
    mesh.route(f"{{retries: {{attempts: 0}}, route: [{to('v1')}]}}")
    eventually(
        lambda: mesh.client.call(headers={"fail": "1"})["errors"] == {"UNAVAILABLE": 1}, 20, "nothing is tried again"
    )


def test_short_names_mean_what_they_mean_in_dns(mesh: Mesh) -> None:
    mesh.route(f"{{route: [{to('v2')}]}}")
    for target in ("xds:///echo:7070", "xds:///echo.shop:7070"):
        eventually(lambda: mesh.client.call(target, calls=3)["names"] == {"v2": 3}, 20, target)  # noqa: B023


def test_mutual_tls_and_policies_hold_between_clients_and_servers(mesh: Mesh) -> None:
    eventually(lambda: mesh.client.call(SECURE, secure=True)["names"] == {"secure": 1}, 30, "the client is let in")
    assert mesh.client.call(SECURE, secure=True, method="Other")["errors"] == {"PERMISSION_DENIED": 1}
    assert mesh.other.call(SECURE, secure=True)["errors"] == {"PERMISSION_DENIED": 1}
    assert mesh.client.call(SECURE, secure=False, timeout=3)["errors"].keys() <= {"UNAVAILABLE", "DEADLINE_EXCEEDED"}

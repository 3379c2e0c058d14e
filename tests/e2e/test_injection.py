"""Pods from the injection webhook: the init container captures traffic, and the sidecar serves it in the mesh."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.mesh_config import decode_mesh_config
from testing.kube.webhooks import make_injector, serving
from testing.mesh.books_service import books
from testing.processes.kubelet import Kubelet
from testing.processes.netns import Host, Network
from testing.processes.process import ControlPlane, envoy_binary, eventually
from testing.security import certificates
from testing.security.certificates import DAY, write_plugged_in
from testing.security.tokens import token, write_keys
from testing.servers.backends import Backend, HttpResponse, send_request
from webhook.server.injector import InjectionContext

NODE, VIP = "10.76.0.1", "10.76.96.10"
PODS = {"web": "10.76.1.1", "books": "10.76.1.2", "transparent": "10.76.1.3"}
STRICT = "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: STRICT}}\n"
TPROXY = {"sidecar.istio.io/interceptionMode": "TPROXY"}
OBJECTS = (
    books(VIP, PODS["books"])
    + "---"
    + books("10.76.96.11", PODS["transparent"]).replace("books", "transparent")
    + STRICT
)


def make_pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """Return a user's pod."""
    containers = [
        {"name": "app", "image": f"registry.example/{name}:1", "ports": [{"containerPort": 8080, "name": "http"}]}
    ]
    metadata = {"name": f"{name}-0", "namespace": "shop", "labels": {"app": name}, "annotations": annotations}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"serviceAccountName": name, "containers": containers},
    }


def inject(pod: dict[str, Any], discovery: str) -> dict[str, Any]:
    """Return the pod injected for a control plane at this address."""
    metadata = {"ISTIOD_SAN": "istiod.istio-system.svc", "ECC_SIGNATURE_ALGORITHM": "ECDSA"}
    config = {
        "discoveryAddress": discovery,
        "binaryPath": envoy_binary(),
        "concurrency": 1,
        "terminationDrainDuration": "1s",
        "proxyMetadata": metadata,
    }
    mesh, _ = decode_mesh_config([{"defaultConfig": config}])
    assert isinstance(mesh, MeshConfig)

    async def review() -> dict[str, Any]:
        async with serving(
            make_injector(InjectionContext(lambda: mesh), **{"global": {"caAddress": discovery}})
        ) as webhooks:
            return await webhooks.inject(pod)

    return asyncio.run(review())


class Mesh:
    """A control plane, the client pod `web`, and the server pods `books` and `transparent`. The latter uses TPROXY."""

    def __init__(self, work: pathlib.Path) -> None:
        self._stack = contextlib.ExitStack()
        self.network = Network(NODE)
        self._stack.callback(self.network.stop)
        self.root = certificates.root(lifetime=3650 * DAY)
        authority, config = work / "cacerts", work / "config"
        authority.mkdir()
        config.mkdir()
        write_plugged_in(authority, certificates.intermediate(self.root, 1, 3000 * DAY))
        (config / "objects.yaml").write_text(OBJECTS)
        more = ["--tokenKeys", str(write_keys(work / "jwks.json"))]
        self.pilot = ControlPlane(
            work, config, host=NODE, join=self.network.node.join, more=more, environ={"ROOT_CA_DIR": str(authority)}
        )
        self._stack.callback(self.pilot.stop)
        self.network.node.run(self.pilot.wait_ready)
        self.hosts: dict[str, Host] = {}
        self.pods = {name: self._start(name, ip, TPROXY if name == "transparent" else {}) for name, ip in PODS.items()}
        self.backends = {name: self._backend(name) for name in ("books", "transparent")}

    def _start(self, name: str, ip: str, annotations: dict[str, str]) -> Kubelet:
        host = self.hosts[name] = self.network.attach(ip)
        files = {
            "/var/run/secrets/tokens/istio-token": token("shop", name).encode(),
            "/var/run/secrets/istio/root-cert.pem": self.root.roots_pem,
        }
        pod = inject(make_pod(name, annotations), f"{NODE}:{self.pilot.ports['secureGRPCAddr']}")
        kubelet = Kubelet(pod, host, ip, files)
        self._stack.callback(kubelet.stop)
        kubelet.run_init()
        kubelet.start("istio-proxy")
        return kubelet

    def _backend(self, name: str) -> Backend:
        backend = self.hosts[name].run(lambda: Backend(name, host=PODS[name], port=8080))
        self._stack.callback(backend.stop)
        return backend

    def ask(self, name: str, vip: str) -> HttpResponse:
        """Send a request from the application in `web` to a service."""
        return self.hosts["web"].run(lambda: send_request((vip, 80), "/", host=name))

    def logs(self) -> str:
        return "\n".join(pod.started["istio-proxy"].tail(12) for pod in self.pods.values() if pod.started)

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    env = Mesh(tmp_path_factory.mktemp("injected"))
    try:
        for name, vip in (("books", VIP), ("transparent", "10.76.96.11")):
            try:
                eventually(lambda name=name, vip=vip: env.ask(name, vip).status == 200, 40, f"{name} answers")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{env.logs()}") from error
        yield env
    finally:
        env.stop()


def test_request_is_captured_and_encrypted(mesh: Mesh) -> None:
    assert mesh.ask("books", VIP).json["backend"] == "books"
    headers = mesh.backends["books"].requests[-1].headers
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in headers["x-forwarded-client-cert"]


def test_plaintext_from_outside_the_mesh_is_refused(mesh: Mesh) -> None:
    count = len(mesh.backends["books"].requests)
    with pytest.raises(ConnectionError):
        mesh.network.node.run(lambda: send_request((PODS["books"], 8080), "/plain"))
    assert len(mesh.backends["books"].requests) == count


def test_transparent_pod_sees_the_client_address(mesh: Mesh) -> None:
    assert mesh.ask("transparent", "10.76.96.11").json["backend"] == "transparent"
    last = mesh.backends["transparent"].requests[-1]
    assert last.peer == PODS["web"]
    assert "spiffe://cluster.local/ns/shop/sa/web" in last.headers["x-forwarded-client-cert"]


def test_probes_reach_the_sidecar(mesh: Mesh) -> None:
    for name, ip in PODS.items():
        status = eventually(
            lambda ip=ip: mesh.network.node.run(lambda: send_request((ip, 15021), "/healthz/ready")),
            20,
            f"{name} is ready",
        ).status
        assert status == 200, name


def test_injection_status_annotation(mesh: Mesh) -> None:
    status = json.loads(mesh.pods["books"].pod["metadata"]["annotations"]["sidecar.istio.io/status"])
    assert (status["initContainers"], status["containers"]) == (["istio-init"], ["istio-proxy"])

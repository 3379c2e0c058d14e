"""Pods that our webhook injects run as they are: their init container has traffic captured, their sidecar serves it in the mesh."""

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
from testing.servers.backends import Answer, Backend, ask
from webhook.server.injector import InjectionContext

NODE, VIP = "10.76.0.1", "10.76.96.10"
PODS = {"web": "10.76.1.1", "books": "10.76.1.2", "kept": "10.76.1.3"}
STRICT = "---\napiVersion: security.istio.io/v1\nkind: PeerAuthentication\nmetadata: {name: default, namespace: shop}\nspec: {mtls: {mode: STRICT}}\n"
TRANSPARENT = {"sidecar.istio.io/interceptionMode": "TPROXY"}
OBJECTS = books(VIP, PODS["books"]) + "---" + books("10.76.96.11", PODS["kept"]).replace("books", "kept") + STRICT


def made_pod(name: str, annotations: dict[str, str]) -> dict[str, Any]:
    """A pod as its user writes it."""
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


def injected(pod: dict[str, Any], discovery: str) -> dict[str, Any]:
    """What the webhook makes of it for a mesh whose control plane is at this address."""
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
            return await webhooks.injected(pod)

    return asyncio.run(review())


class Mesh:
    """A control plane, the pod `web` without an application, and the pods `books` and `kept`, of which the latter has its callers' addresses."""

    def __init__(self, work: pathlib.Path) -> None:
        self._stack = contextlib.ExitStack()
        self.network = Network(NODE)
        self._stack.callback(self.network.stop)
        self.root = certificates.root(life=3650 * DAY)
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
        self.pods = {name: self._start(name, ip, TRANSPARENT if name == "kept" else {}) for name, ip in PODS.items()}
        self.backends = {name: self._backend(name) for name in ("books", "kept")}

    def _start(self, name: str, ip: str, annotations: dict[str, str]) -> Kubelet:
        host = self.hosts[name] = self.network.attach(ip)
        files = {
            "/var/run/secrets/tokens/istio-token": token("shop", name).encode(),
            "/var/run/secrets/istio/root-cert.pem": self.root.roots_pem,
        }
        pod = injected(made_pod(name, annotations), f"{NODE}:{self.pilot.ports['secureGRPCAddr']}")
        started = Kubelet(pod, host, ip, files)
        self._stack.callback(started.stop)
        started.run_init()
        started.start("istio-proxy")
        return started

    def _backend(self, name: str) -> Backend:
        made = self.hosts[name].run(lambda: Backend(name, host=PODS[name], port=8080))
        self._stack.callback(made.stop)
        return made

    def ask(self, name: str, vip: str) -> Answer:
        """What the application of `web` gets from a service."""
        return self.hosts["web"].run(lambda: ask((vip, 80), "/", host=name))

    def logs(self) -> str:
        return "\n".join(pod.started["istio-proxy"].tail(12) for pod in self.pods.values() if pod.started)

    def stop(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    made = Mesh(tmp_path_factory.mktemp("injected"))
    try:
        for name, vip in (("books", VIP), ("kept", "10.76.96.11")):
            try:
                eventually(lambda name=name, vip=vip: made.ask(name, vip).status == 200, 40, f"{name} answers")
            except AssertionError as error:
                raise AssertionError(f"{error}\n{made.logs()}") from error
        yield made
    finally:
        made.stop()


def test_a_request_is_captured_on_its_way_out_and_in_and_encrypted_in_between(mesh: Mesh) -> None:
    assert mesh.ask("books", VIP).json["backend"] == "books"
    headers = mesh.backends["books"].requests[-1].headers
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in headers["x-forwarded-client-cert"]


def test_what_is_not_of_the_mesh_is_captured_too_and_refused(mesh: Mesh) -> None:
    count = len(mesh.backends["books"].requests)
    with pytest.raises(ConnectionError):
        mesh.network.node.run(lambda: ask((PODS["books"], 8080), "/plain"))
    assert len(mesh.backends["books"].requests) == count


def test_the_applications_of_a_transparent_pod_see_who_calls(mesh: Mesh) -> None:
    assert mesh.ask("kept", "10.76.96.11").json["backend"] == "kept"
    last = mesh.backends["kept"].requests[-1]
    assert last.peer == PODS["web"]
    assert "spiffe://cluster.local/ns/shop/sa/web" in last.headers["x-forwarded-client-cert"]


def test_probes_reach_the_sidecar_from_outside(mesh: Mesh) -> None:
    for name, ip in PODS.items():
        status = eventually(
            lambda ip=ip: mesh.network.node.run(lambda: ask((ip, 15021), "/healthz/ready")), 20, f"{name} is ready"
        ).status
        assert status == 200, name


def test_the_pod_says_what_was_added_to_it(mesh: Mesh) -> None:
    status = json.loads(mesh.pods["books"].pod["metadata"]["annotations"]["sidecar.istio.io/status"])
    assert (status["initContainers"], status["containers"]) == (["istio-init"], ["istio-proxy"])

"""Two workloads with agents and stock Envoys: certificates, mutual TLS, rotation, probes and draining."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import ssl
import threading
import urllib.request
from collections.abc import Iterator, Mapping

import pytest
from cryptography import x509

from testing.mesh.books_service import books
from testing.processes.netns import Host, Network, capture
from testing.processes.process import ControlPlane, Process, eventually
from testing.processes.sidecar import Sidecar
from testing.security import certificates
from testing.security.certificates import DAY, write_plugged_in
from testing.security.tokens import write_keys
from testing.servers.backends import Backend, HttpResponse, send_request

NODE, CLIENT, SERVER, VIP = "10.78.0.1", "10.78.1.1", "10.78.1.2", "10.78.96.10"
SHORT_LIVED = {"SECRET_TTL": "30s", "SECRET_GRACE_PERIOD_RATIO": "0.9"}
"""Certificates are renewed after three seconds, so that several are used in a test. They are valid for half a minute."""
OBJECTS = (
    books(VIP, SERVER)
    + """---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: books, namespace: shop}
spec:
  host: books.shop.svc.cluster.local
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}  # a handshake for each request
"""
)
PROBERS = {
    "/app-health/app/livez": {"httpGet": {"path": "/live", "port": 8080}},
    "/app-health/app/readyz": {"tcpSocket": {"port": 8080}},
}
ENVIRONMENT = {
    "ISTIO_KUBE_APP_PROBERS": json.dumps(PROBERS),
    "EXIT_ON_ZERO_ACTIVE_CONNECTIONS": "true",
    "MINIMUM_DRAIN_DURATION": "0s",
    "ENVOY_SECURE_METRICS_PORT": "15091",
}
POLICY = """
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata: {{name: default, namespace: shop}}
spec: {{mtls: {{mode: {mode}}}}}
"""
HASH = re.compile(r"Hash=([0-9a-f]+)")


class Mesh:
    """Client and server pods on a bridge, and a control plane with a plugged-in intermediate."""

    def __init__(self, work: pathlib.Path, certificate: Mapping[str, str]) -> None:
        """`certificate` has the certificate settings of the agents."""
        self.work, self._certificate, self._stack = work, certificate, contextlib.ExitStack()
        self.network = Network(NODE)
        self._stack.callback(self.network.stop)
        self.client, self.server = self.network.attach(CLIENT), self.network.attach(SERVER)
        self.root = certificates.root(lifetime=3650 * DAY)
        self.authority = work / "cacerts"
        self.authority.mkdir()
        write_plugged_in(self.authority, certificates.intermediate(self.root, 1, 3000 * DAY))
        (work / "config").mkdir()
        (work / "config" / "objects.yaml").write_text(OBJECTS)
        more = ["--tokenKeys", str(write_keys(work / "jwks.json"))]
        environ = {"ROOT_CA_DIR": str(self.authority)}
        self.pilot = ControlPlane(
            work, work / "config", host=NODE, join=self.network.node.join, more=more, environ=environ
        )
        self._stack.callback(self.pilot.stop)
        self.network.node.run(self.pilot.wait_ready)
        self.backend = self.server.run(lambda: Backend("books", host=SERVER, port=8080))
        self._stack.callback(self.backend.stop)
        self.sidecars = {
            "web": self._sidecar("web", self.client, CLIENT),
            "books": self._sidecar("books", self.server, SERVER),
        }
        for host in (self.client, self.server):
            host.run(lambda: capture(excluded_ports=(15020, 15021, 15090)))

    def restart_control_plane(self) -> None:
        """Kill the control plane, and start it again on the same ports."""
        self.pilot.child.kill()
        self.pilot.child.wait()
        restarted = Process(
            list(self.pilot.child.args),
            self.work / "pilot-again.log",
            self.network.node.join,
            {"ROOT_CA_DIR": str(self.authority)},
        )
        self._stack.callback(restarted.stop)
        eventually(
            lambda: self.network.node.run(lambda: self.pilot.get("/ready", "httpAddr")) is not None,
            60,
            "the control plane is back",
        )

    def _sidecar(self, account: str, host: Host, ip: str) -> Sidecar:
        output = self.work / f"{account}-certs"
        output.mkdir()
        discovery = f"{NODE}:{self.pilot.ports['secureGRPCAddr']}"
        sidecar = Sidecar(
            self.work / account,
            account,
            ip,
            discovery,
            self.root.roots_pem,
            join=host.join_as_proxy,
            environ={**self._certificate, **ENVIRONMENT, "OUTPUT_CERTS": str(output)},
            config={"proxyMetadata": {"ISTIO_META_WORKLOAD_NAME": account}},
        )
        self._stack.callback(sidecar.stop)
        return sidecar

    def policy(self, mode: str) -> None:
        """Replace the policy of the namespace, or remove it for an empty mode."""
        path = self.work / "config" / "policy.yaml"
        if mode:
            path.with_suffix(".new").write_text(POLICY.format(mode=mode))
            os.replace(path.with_suffix(".new"), path)
        else:
            path.unlink(missing_ok=True)

    def ask(self, path: str = "/") -> HttpResponse:
        """Send a request from the client application to the service's virtual IP, through both sidecars."""
        return self.client.run(lambda: send_request((VIP, 80), path, host="books"))

    def ask_plain(self) -> HttpResponse:
        """Send a request from outside the mesh to the server's pod."""
        return self.network.node.run(lambda: send_request((SERVER, 8080), "/plain"))

    def accepts_plaintext(self) -> bool:
        """Return whether the server's sidecar accepts plaintext requests."""
        try:
            return self.ask_plain().status == 200
        except ConnectionError:
            return False

    def forwarded(self) -> str:
        """Send a request and return the client certificate header that the server's sidecar adds."""
        assert self.ask().status == 200
        return self.backend.requests[-1].headers.get("x-forwarded-client-cert", "")

    def chain(self, name: str) -> set[str]:
        """Return the serial numbers that are in the certificate chains of all listeners and clusters of a sidecar."""
        sidecar, host = self.sidecars[name], self.client if name == "web" else self.server
        certs = json.loads(
            host.run(
                lambda: sidecar.get("/config_dump?resource=dynamic_active_secrets&mask=name,secret.tls_certificate")
            )
        )
        pairs = [c["secret"]["tls_certificate"] for c in certs["configs"] if c["name"] == "default"]
        chains = [base64.b64decode(pair["certificate_chain"]["inline_bytes"]) for pair in pairs]
        serials = [{f"{each.serial_number:x}" for each in x509.load_pem_x509_certificates(pem)} for pem in chains]
        return set.intersection(*serials)

    def ready(self) -> bool:
        return self.client.run(self.sidecars["web"].ready) and self.server.run(self.sidecars["books"].ready)

    def stop(self) -> None:
        self._stack.close()


def start(work: pathlib.Path, certificate: Mapping[str, str]) -> Iterator[Mesh]:
    env = Mesh(work, certificate)
    try:
        eventually(env.ready, 60, "both proxies ready")
        eventually(lambda: env.ask().status == 200, 30, "the server answers through both sidecars")
        yield env
    finally:
        env.stop()


@pytest.fixture(scope="module")
def renewing_mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """A mesh with short-lived certificates."""
    yield from start(tmp_path_factory.mktemp("renewing"), SHORT_LIVED)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    yield from start(tmp_path_factory.mktemp("agents"), {})


@pytest.fixture
def disposable_mesh(tmp_path: pathlib.Path) -> Iterator[Mesh]:
    """A mesh for one test, which may stop its agents."""
    yield from start(tmp_path, {})


def test_server_sees_the_spiffe_id_of_the_client(mesh: Mesh) -> None:
    header = mesh.forwarded()
    assert "By=spiffe://cluster.local/ns/shop/sa/books" in header
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in header


def test_plaintext_is_accepted_only_while_permissive(mesh: Mesh) -> None:
    mesh.policy("")
    eventually(lambda: mesh.ask_plain().status == 200, 20, "plaintext is accepted")
    mesh.policy("STRICT")
    eventually(lambda: not mesh.accepts_plaintext(), 20, "plaintext is refused")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in mesh.forwarded()
    mesh.policy("PERMISSIVE")
    eventually(lambda: mesh.ask_plain().status == 200, 20, "plaintext is accepted again")
    mesh.policy("")


def test_certificate_renewal_fails_no_requests(renewing_mesh: Mesh) -> None:
    hashes: dict[str, int] = {}
    for _ in range(5000):
        match = HASH.search(renewing_mesh.forwarded())
        assert match is not None
        hashes[match[1]] = hashes.get(match[1], 0) + 1
        if len(hashes) == 4:
            break
    assert len(hashes) == 4, "the client's certificate was not renewed"
    assert not any(
        renewing_mesh.client.run(lambda: renewing_mesh.sidecars["web"].stats("ssl.fail_verify_error")).values()
    )
    assert (
        renewing_mesh.network.node.run(lambda: renewing_mesh.pilot.metric("citadel_server_success_cert_issuance_count"))
        >= 4
    )


def test_new_intermediate_is_used_without_a_restart(renewing_mesh: Mesh) -> None:
    new_signer = certificates.intermediate(renewing_mesh.root, 2, 3000 * DAY)
    serial = f"{new_signer.certificate.serial_number:x}"
    assert renewing_mesh.ask().status == 200
    write_plugged_in(renewing_mesh.authority, new_signer)

    def both_use_it() -> bool:
        assert renewing_mesh.ask().status == 200  # also during the transition
        return all(serial in renewing_mesh.chain(name) for name in ("web", "books"))

    eventually(both_use_it, 60, "both proxies have certificates of the new intermediate")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in renewing_mesh.forwarded()


def test_kubelet_probes_pass_under_strict_mtls(mesh: Mesh) -> None:
    mesh.policy("STRICT")
    eventually(lambda: not mesh.accepts_plaintext(), 20, "plaintext is refused")
    mesh.backend.reset()
    for path in PROBERS:
        assert mesh.network.node.run(lambda path=path: send_request((SERVER, 15020), path)).status == 200
    assert [request.path for request in mesh.backend.requests] == ["/live"]
    assert "x-forwarded-client-cert" not in mesh.backend.requests[0].headers  # sent by the agent, not by Envoy
    mesh.policy("")


def test_proxies_survive_a_control_plane_restart(mesh: Mesh) -> None:
    mesh.restart_control_plane()
    assert mesh.ask().status == 200
    mesh.policy("STRICT")
    eventually(lambda: not mesh.accepts_plaintext(), 60, "the new policy has arrived")
    mesh.policy("")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in mesh.forwarded()


def test_metrics_of_envoy_and_agent_are_merged(mesh: Mesh) -> None:
    page = mesh.client.run(lambda: mesh.sidecars["web"].get("/stats/prometheus", "127.0.0.1:15020"))
    assert "istio_agent_cert_expiry_seconds" in page
    assert "envoy_server_state" in page
    assert mesh.client.run(lambda: mesh.sidecars["web"].get("/healthz/ready", "127.0.0.1:15021")) == ""
    assert "envoy_server_state" in mesh.client.run(
        lambda: mesh.sidecars["web"].get("/stats/prometheus", "127.0.0.1:15090")
    )


def test_secure_metrics_require_a_certificate_of_the_mesh(mesh: Mesh) -> None:
    def scrape(context: ssl.SSLContext) -> str:
        request = urllib.request.Request("https://127.0.0.1:15091/stats/prometheus")
        with urllib.request.urlopen(request, timeout=10, context=context) as response:
            body: bytes = response.read()
        return body.decode()

    context = ssl.create_default_context(cadata=mesh.root.roots_pem.decode())
    context.check_hostname = False
    with pytest.raises(OSError, match=r"(?i)certificate required|EOF|closed|reset"):
        mesh.client.run(lambda: scrape(context))
    files = mesh.work / "web-certs"
    context.load_cert_chain(files / "cert-chain.pem", files / "key.pem")
    assert "envoy_server_state" in mesh.client.run(lambda: scrape(context))


def test_metrics_are_compressed_on_request(mesh: Mesh) -> None:
    def encoding(accepted: str) -> str | None:
        request = urllib.request.Request("http://127.0.0.1:15090/stats/prometheus")
        request.add_header("accept-encoding", accepted)
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(response.headers.get("content-encoding"))

    for name in ("gzip", "br", "zstd"):
        assert mesh.client.run(lambda name=name: encoding(name)) == name


def test_envoy_rejects_no_configuration(mesh: Mesh) -> None:
    for name, host in (("web", mesh.client), ("books", mesh.server)):
        rejected = host.run(lambda name=name: mesh.sidecars[name].stats("update_rejected"))
        assert rejected
        assert not any(rejected.values()), mesh.sidecars[name].tail()
    assert mesh.network.node.run(lambda: mesh.pilot.metric("pilot_total_xds_rejects")) == 0


def test_agent_drains_before_it_exits(disposable_mesh: Mesh) -> None:
    disposable_mesh.backend.reset()
    disposable_mesh.backend.delay = 2.0
    statuses: list[int] = []
    client_thread = threading.Thread(target=lambda: statuses.append(disposable_mesh.ask("/slow").status))
    client_thread.start()
    eventually(lambda: disposable_mesh.backend.requests, 20, "the request has arrived")
    assert disposable_mesh.sidecars["books"].stop() == 0
    client_thread.join()
    assert statuses == [200]
    with pytest.raises(OSError):  # noqa: PT011
        disposable_mesh.server.run(lambda: disposable_mesh.sidecars["books"].get("/ready"))


def test_agent_fails_when_its_envoy_dies(disposable_mesh: Mesh) -> None:
    sidecar = disposable_mesh.sidecars["web"]
    (envoy,) = pathlib.Path(f"/proc/{sidecar.child.pid}/task/{sidecar.child.pid}/children").read_text().split()
    os.kill(int(envoy), signal.SIGKILL)
    assert sidecar.child.wait(20) == 1
    assert "Envoy exited unexpectedly with status -9" in sidecar.log.read_text()

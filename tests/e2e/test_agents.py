"""Two workloads whose stock Envoys are started by the agent: certificates of our authority, mutual TLS, rotation."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pathlib
import re
import signal
import threading
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
from testing.servers.backends import Answer, Backend, ask

NODE, CLIENT, SERVER, VIP = "10.78.0.1", "10.78.1.1", "10.78.1.2", "10.78.96.10"
QUICK = {"SECRET_TTL": "30s", "SECRET_GRACE_PERIOD_RATIO": "0.9"}
"""A certificate is renewed after three seconds, so that some come and go in a test, and would do for half a minute."""
OBJECTS = (
    books(VIP, SERVER)
    + """---
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: books, namespace: shop}
spec:
  host: books.shop.svc.cluster.local
  trafficPolicy: {connectionPool: {http: {maxRequestsPerConnection: 1}}}  # so that every request needs a handshake
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
        """`certificate` are the agents' settings of certificates."""
        self.work, self._certificate, self._stack = work, certificate, contextlib.ExitStack()
        self.network = Network(NODE)
        self._stack.callback(self.network.stop)
        self.client, self.server = self.network.attach(CLIENT), self.network.attach(SERVER)
        self.root = certificates.root(life=3650 * DAY)
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
            host.run(lambda: capture(kept=(15020, 15021, 15090)))

    def restart_control_plane(self) -> None:
        """Ends the control plane without a farewell, and starts it again at its ports."""
        self.pilot.child.kill()
        self.pilot.child.wait()
        again = Process(
            list(self.pilot.child.args),
            self.work / "pilot-again.log",
            self.network.node.join,
            {"ROOT_CA_DIR": str(self.authority)},
        )
        self._stack.callback(again.stop)
        eventually(
            lambda: self.network.node.run(lambda: self.pilot.get("/ready", "httpAddr")) is not None,
            60,
            "the control plane is back",
        )

    def _sidecar(self, account: str, host: Host, ip: str) -> Sidecar:
        discovery = f"{NODE}:{self.pilot.ports['secureGRPCAddr']}"
        made = Sidecar(
            self.work / account,
            account,
            ip,
            discovery,
            self.root.roots_pem,
            join=host.join_as_proxy,
            environ={**self._certificate, **ENVIRONMENT},
            config={"proxyMetadata": {"ISTIO_META_WORKLOAD_NAME": account}},
        )
        self._stack.callback(made.stop)
        return made

    def policy(self, mode: str) -> None:
        """Replaces the policy of the namespace; an empty mode takes it away."""
        path = self.work / "config" / "policy.yaml"
        if mode:
            path.with_suffix(".new").write_text(POLICY.format(mode=mode))
            os.replace(path.with_suffix(".new"), path)
        else:
            path.unlink(missing_ok=True)

    def ask(self, path: str = "/") -> Answer:
        """A request of the client application to the service's virtual IP: both sidecars must pass it on."""
        return self.client.run(lambda: ask((VIP, 80), path, host="books"))

    def ask_plain(self) -> Answer:
        """A request from outside of the mesh to the server's pod."""
        return self.network.node.run(lambda: ask((SERVER, 8080), "/plain"))

    def takes_plain_text(self) -> bool:
        """Whether the server's sidecar answers such a request at all."""
        try:
            return self.ask_plain().status == 200
        except ConnectionError:
            return False

    def forwarded(self) -> str:
        """What the server's sidecar says of the client of one new request."""
        assert self.ask().status == 200
        return self.backend.requests[-1].headers.get("x-forwarded-client-cert", "")

    def chain(self, name: str) -> set[str]:
        """Serial numbers of the certificates that are in the chain which a sidecar shows."""
        sidecar, host = self.sidecars[name], self.client if name == "web" else self.server
        certs = json.loads(
            host.run(
                lambda: sidecar.get("/config_dump?resource=dynamic_active_secrets&mask=name,secret.tls_certificate")
            )
        )
        (pair,) = (c["secret"]["tls_certificate"] for c in certs["configs"] if c["name"] == "default")
        pem = base64.b64decode(pair["certificate_chain"]["inline_bytes"])
        return {f"{found.serial_number:x}" for found in x509.load_pem_x509_certificates(pem)}

    def ready(self) -> bool:
        return self.client.run(self.sidecars["web"].ready) and self.server.run(self.sidecars["books"].ready)

    def stop(self) -> None:
        self._stack.close()


def start(work: pathlib.Path, certificate: Mapping[str, str]) -> Iterator[Mesh]:
    found = Mesh(work, certificate)
    try:
        eventually(found.ready, 60, "both proxies ready")
        eventually(lambda: found.ask().status == 200, 30, "the server answers through both sidecars")
        yield found
    finally:
        found.stop()


@pytest.fixture(scope="module")
def renewing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    """Certificates come and go all the time."""
    yield from start(tmp_path_factory.mktemp("renewing"), QUICK)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mesh]:
    yield from start(tmp_path_factory.mktemp("agents"), {})


@pytest.fixture
def ending(tmp_path: pathlib.Path) -> Iterator[Mesh]:
    """A mesh whose agents a test ends."""
    yield from start(tmp_path, {})


def test_the_server_sees_the_spiffe_id_of_the_client(mesh: Mesh) -> None:
    said = mesh.forwarded()
    assert "By=spiffe://cluster.local/ns/shop/sa/books" in said
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in said


def test_plain_text_is_taken_while_permissive_and_refused_when_strict(mesh: Mesh) -> None:
    mesh.policy("")
    eventually(lambda: mesh.ask_plain().status == 200, 20, "plain text is taken")
    mesh.policy("STRICT")
    eventually(lambda: not mesh.takes_plain_text(), 20, "plain text is refused")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in mesh.forwarded()
    mesh.policy("PERMISSIVE")
    eventually(lambda: mesh.ask_plain().status == 200, 20, "plain text is taken again")
    mesh.policy("")


def test_certificates_are_renewed_under_load_without_a_failed_request(renewing: Mesh) -> None:
    seen: dict[str, int] = {}
    for _ in range(5000):
        found = HASH.search(renewing.forwarded())
        assert found is not None
        seen[found[1]] = seen.get(found[1], 0) + 1
        if len(seen) == 4:
            break
    assert len(seen) == 4, "the client's certificate was not renewed"
    assert not any(renewing.client.run(lambda: renewing.sidecars["web"].stats("ssl.fail_verify_error")).values())
    assert renewing.network.node.run(lambda: renewing.pilot.metric("citadel_server_success_cert_issuance_count")) >= 4


def test_another_intermediate_of_the_same_root_counts_without_a_restart(renewing: Mesh) -> None:
    fresh = certificates.intermediate(renewing.root, 2, 3000 * DAY)
    serial = f"{fresh.certificate.serial_number:x}"
    assert renewing.ask().status == 200
    write_plugged_in(renewing.authority, fresh)

    def both_have_it() -> bool:
        assert renewing.ask().status == 200  # while one of them has it and the other has not
        return all(serial in renewing.chain(name) for name in ("web", "books"))

    eventually(both_have_it, 60, "both proxies have certificates of the new intermediate")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in renewing.forwarded()


def test_the_kubelet_probes_the_application_though_plain_text_is_refused(mesh: Mesh) -> None:
    mesh.policy("STRICT")
    eventually(lambda: not mesh.takes_plain_text(), 20, "plain text is refused")
    mesh.backend.reset()
    for path in PROBERS:
        assert mesh.network.node.run(lambda path=path: ask((SERVER, 15020), path)).status == 200
    assert [request.path for request in mesh.backend.requests] == ["/live"]
    assert "x-forwarded-client-cert" not in mesh.backend.requests[0].headers  # straight from the agent
    mesh.policy("")


def test_proxies_keep_serving_while_the_control_plane_is_away_and_follow_the_next_one(mesh: Mesh) -> None:
    mesh.restart_control_plane()
    assert mesh.ask().status == 200
    mesh.policy("STRICT")
    eventually(lambda: not mesh.takes_plain_text(), 60, "the new policy has arrived")
    mesh.policy("")
    assert "URI=spiffe://cluster.local/ns/shop/sa/web" in mesh.forwarded()


def test_metrics_of_envoy_and_agent_are_one_page(mesh: Mesh) -> None:
    page = mesh.client.run(lambda: mesh.sidecars["web"].get("/stats/prometheus", "127.0.0.1:15020"))
    assert "istio_agent_cert_expiry_seconds" in page
    assert "envoy_server_state" in page
    assert mesh.client.run(lambda: mesh.sidecars["web"].get("/healthz/ready", "127.0.0.1:15021")) == ""
    assert "envoy_server_state" in mesh.client.run(
        lambda: mesh.sidecars["web"].get("/stats/prometheus", "127.0.0.1:15090")
    )


def test_envoy_takes_everything_that_it_is_sent(mesh: Mesh) -> None:
    for name, host in (("web", mesh.client), ("books", mesh.server)):
        rejected = host.run(lambda name=name: mesh.sidecars[name].stats("update_rejected"))
        assert rejected
        assert not any(rejected.values()), mesh.sidecars[name].tail()
    assert mesh.network.node.run(lambda: mesh.pilot.metric("pilot_total_xds_rejects")) == 0


def test_an_agent_lets_requests_finish_before_it_ends_with_its_envoy(ending: Mesh) -> None:
    ending.backend.reset()
    ending.backend.delay = 2.0
    answers: list[int] = []
    asking = threading.Thread(target=lambda: answers.append(ending.ask("/slow").status))
    asking.start()
    eventually(lambda: ending.backend.requests, 20, "the request has arrived")
    assert ending.sidecars["books"].stop() == 0
    asking.join()
    assert answers == [200]
    with pytest.raises(OSError):  # noqa: PT011
        ending.server.run(lambda: ending.sidecars["books"].get("/ready"))


def test_an_agent_ends_with_an_error_when_its_envoy_dies(ending: Mesh) -> None:
    sidecar = ending.sidecars["web"]
    (envoy,) = pathlib.Path(f"/proc/{sidecar.child.pid}/task/{sidecar.child.pid}/children").read_text().split()
    os.kill(int(envoy), signal.SIGKILL)
    assert sidecar.child.wait(20) == 1
    assert "Envoy exited unexpectedly with status -9" in sidecar.log.read_text()

"""TLS at a stock Envoy as ingress gateway: all server modes, and secrets that change at runtime."""

from __future__ import annotations

import json
import pathlib
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from pilot.agent.envoy.envoy_bootstrap import ProxyNode
from testing.clients.tls_client import client_context, connected, is_rejected
from testing.mesh.objects import make
from testing.processes.agent_stub import Agent, Root
from testing.processes.process import ControlPlane, Envoy, XdsCredentials, eventually, free_port
from testing.security.credentials import Authority, IssuedCertificate, data_secret, rsa_key, tls_secret
from testing.servers.backends import Backend

ROOT, CLIENT_CA, FOREIGN_CA = Authority("servers"), Authority("clients"), Authority("strangers")
HOST, IDENTITY = "web.example.com", "spiffe://cluster.local/ns/edge/sa/gateway"
SERVER, RENEWED, RSA = ROOT.issue(HOST), ROOT.issue(HOST), ROOT.issue(HOST, rsa_key())
CLIENT, REVOKED, FOREIGN = CLIENT_CA.issue("client"), CLIENT_CA.issue("revoked"), FOREIGN_CA.issue("stranger")
WITHOUT_SECRETS = ("late", "foreign")
"""Servers without available secrets. At startup, Envoy waits 15 s for them before it listens on any port."""
MODES = {
    "simple": "mode: SIMPLE, credentialName: simple",
    "mutual": "mode: MUTUAL, credentialName: mutual",
    "optional": "mode: OPTIONAL_MUTUAL, credentialName: mutual",
    "several": "mode: SIMPLE, credentialNames: [simple, rsa]",
    "foreign": "mode: SIMPLE, credentialName: 'kubernetes://far/simple'",
    "late": "mode: SIMPLE, credentialName: late",
    "istio": "mode: ISTIO_MUTUAL",
    "passed": "mode: PASSTHROUGH",
}


class TlsBackend(Backend):
    """A backend that terminates TLS. `clients` are the trusted roots for client certificates, if it requires any."""

    def __init__(self, name: str, issued: IssuedCertificate, work: pathlib.Path, clients: bytes = b"") -> None:
        super().__init__(name)
        (work / f"{name}.pem").write_bytes(issued.chain + issued.private_key)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(work / f"{name}.pem")
        if clients:
            context.load_verify_locations(cadata=clients.decode())
            context.verify_mode = ssl.CERT_REQUIRED
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)


class Edge:
    """A gateway with one port for each TLS mode, in front of a backend."""

    def __init__(self, work: pathlib.Path, delta: bool) -> None:
        self.backend, self.tls_backend = Backend("web"), TlsBackend("passed", ROOT.issue(HOST), work)
        self.upstream = TlsBackend("upstream", ROOT.issue(HOST), work, CLIENT_CA.pem)
        self.config = work / "config"
        self.config.mkdir()
        self.ports = {mode: free_port() for mode in MODES}
        for name, port in (
            ("web", self.backend.port),
            ("passed", self.tls_backend.port),
            ("upstream", self.upstream.port),
        ):
            self.write(f"{name}-service", service(name, port))
        self.write("gateway", gateway({mode: port for mode, port in self.ports.items() if mode not in WITHOUT_SECRETS}))
        self.write("routes", routes(), passthrough_route(self.ports["passed"]))
        self.write("simple", tls_secret("simple", SERVER))
        self.write("rsa", tls_secret("rsa", RSA, tls_ocsp__staple=ROOT.staple(RSA)))
        self.write("mutual", tls_secret("mutual", SERVER, ca_crt=CLIENT_CA.pem))
        self.write("upstream", upstream_rule(), tls_secret("upstream", CLIENT, ca_crt=ROOT.pem))
        self.write("foreign", tls_secret("simple", SERVER, "far"))
        self.pilot = ControlPlane(work, self.config, more=("--caDir", str(work / "ca")))
        self.pilot.wait_ready()
        self.root = Root.load(work / "ca")
        self.agent = Agent(self.root, IDENTITY, work / "agent.sock")
        node = ProxyNode(
            type="router",
            name="edge-0",
            namespace="edge",
            ip="127.0.0.2",
            labels={"istio": "ingress"},
            service_account="gateway",
        )
        proof = XdsCredentials.write(work, *self.root.issue(IDENTITY), self.root.pem)
        self.envoy = Envoy(work, node, self.pilot.secure_xds, self.agent.socket, credentials=proof, delta=delta)

    def write(self, name: str, *objects: Any) -> None:
        """Write a file and rename it into place, as editors do."""
        temporary = self.config / f".{name}.tmp"
        temporary.write_text("\n---\n".join(map(json.dumps, objects)))
        temporary.replace(self.config / f"{name}.yaml")

    def status(self, mode: str, context: ssl.SSLContext) -> int:
        with connected(self.ports[mode], HOST, context) as connection:
            return connection.get().status

    def serial(self, mode: str) -> int:
        with connected(self.ports[mode], HOST, WITHOUT_CERTIFICATE) as connection:
            return connection.serial

    def refuses(self, mode: str, context: ssl.SSLContext) -> bool:
        return is_rejected(self.ports[mode], HOST, context)

    def stop(self) -> None:
        self.envoy.stop()
        self.pilot.stop()
        self.agent.stop()
        self.backend.stop()
        self.tls_backend.stop()
        self.upstream.stop()


def service(name: str, port: int) -> Any:
    endpoints = f"[{{address: 127.0.0.1, ports: {{http: {port}}}}}]"
    protocol = "TLS" if name == "passed" else "HTTP"
    spec = f"hosts: [{name}.internal], location: MESH_EXTERNAL, resolution: STATIC, ports: [{{number: 80, name: http, protocol: {protocol}}}]"
    return make("ServiceEntry", name, f"{{{spec}, endpoints: {endpoints}}}", "edge")


def gateway(ports: dict[str, int]) -> Any:
    servers = ", ".join(
        f"{{port: {{number: {port}, name: {mode}, protocol: {'TLS' if mode == 'passed' else 'HTTPS'}}}, hosts: [{HOST}], tls: {{{MODES[mode]}}}}}"
        for mode, port in ports.items()
    )
    return make("Gateway", "edge", f"{{selector: {{istio: ingress}}, servers: [{servers}]}}", "edge")


def routes() -> Any:
    upstream = "{match: [{uri: {prefix: /upstream}}], route: [{destination: {host: upstream.internal}}]}"
    return virtual_service("web", f"http: [{upstream}, {{route: [{{destination: {{host: web.internal}}}}]}}]")


def upstream_rule() -> Any:
    tls = f"{{mode: MUTUAL, credentialName: upstream, sni: {HOST}, subjectAltNames: [{HOST}]}}"
    policy = (
        f"{{tls: {tls}, connectionPool: {{http: {{maxRequestsPerConnection: 1}}}}}}"  # a handshake for each request
    )
    return make("DestinationRule", "upstream", f"{{host: upstream.internal, trafficPolicy: {policy}}}", "edge")


def passthrough_route(port: int) -> Any:
    match = f"match: [{{port: {port}, sniHosts: [{HOST}]}}]"
    return virtual_service("passed", f"tls: [{{{match}, route: [{{destination: {{host: passed.internal}}}}]}}]")


def virtual_service(name: str, rules: str) -> Any:
    return make("VirtualService", name, f"{{hosts: [{HOST}], gateways: [edge], {rules}}}", "edge")


WITHOUT_CERTIFICATE = client_context(ROOT.pem)
WITH_CERTIFICATE, WITH_REVOKED, WITH_FOREIGN = (
    client_context(ROOT.pem, issued) for issued in (CLIENT, REVOKED, FOREIGN)
)


@pytest.fixture(scope="module", params=[True, False], ids=["delta", "sotw"])
def edge(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Edge]:
    gateway_env = Edge(tmp_path_factory.mktemp("edge"), request.param)
    try:
        eventually(lambda: gateway_env.status("simple", WITHOUT_CERTIFICATE) == 200, 30, "the gateway answers")
        gateway_env.write("gateway", gateway(gateway_env.ports))
        eventually(
            lambda: "kubernetes://far/simple" in gateway_env.pilot.log.read_text(),
            10,
            "the other servers are configured",
        )
        yield gateway_env
        assert gateway_env.envoy.rejected() == {}, gateway_env.envoy.tail()
        assert gateway_env.pilot.metric("pilot_total_xds_rejects") == 0
    finally:
        gateway_env.stop()


def test_simple_requires_no_client_certificate(edge: Edge) -> None:
    assert edge.serial("simple") == SERVER.certificate.serial_number
    assert edge.status("simple", WITH_CERTIFICATE) == 200
    with pytest.raises(ssl.SSLCertVerificationError):
        edge.status("simple", client_context(FOREIGN_CA.pem))


BY_CIPHERS = {"ECDHE-RSA-AES128-GCM-SHA256": RSA, "ECDHE-ECDSA-AES128-GCM-SHA256": SERVER}


@pytest.mark.parametrize(("ciphers", "issued"), BY_CIPHERS.items(), ids=BY_CIPHERS)
def test_certificate_matches_the_ciphers_of_the_client(edge: Edge, ciphers: str, issued: IssuedCertificate) -> None:
    context = client_context(ROOT.pem)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    with connected(edge.ports["several"], HOST, context) as connection:
        assert connection.serial == issued.certificate.serial_number
        assert connection.get().status == 200


def test_mutual_requires_a_trusted_client_certificate(edge: Edge) -> None:
    assert edge.status("mutual", WITH_CERTIFICATE) == 200
    assert edge.refuses("mutual", WITHOUT_CERTIFICATE)
    assert edge.refuses("mutual", WITH_FOREIGN)


def test_optional_mutual_rejects_only_untrusted_certificates(edge: Edge) -> None:
    assert edge.status("optional", WITHOUT_CERTIFICATE) == 200
    assert edge.status("optional", WITH_CERTIFICATE) == 200
    assert edge.refuses("optional", WITH_FOREIGN)


def test_istio_mutual_requires_a_mesh_certificate(edge: Edge) -> None:
    chain, key = edge.root.issue("spiffe://cluster.local/ns/shop/sa/client")
    mesh = client_context(edge.root.pem, mesh_certificate(chain, key), check_hostname=False)
    assert edge.status("istio", mesh) == 200
    assert edge.refuses("istio", client_context(edge.root.pem, CLIENT, check_hostname=False))
    assert edge.refuses("istio", client_context(edge.root.pem, check_hostname=False))


def mesh_certificate(chain: bytes, key: bytes) -> IssuedCertificate:
    issued = IssuedCertificate(CLIENT.certificate, CLIENT.key)
    issued.chain, issued.private_key = chain, key
    return issued


def test_passthrough_leaves_tls_to_the_backend(edge: Edge) -> None:
    with connected(edge.ports["passed"], HOST, WITHOUT_CERTIFICATE) as connection:
        assert connection.serial not in (SERVER.certificate.serial_number, RENEWED.certificate.serial_number)
        assert connection.get().json["backend"] == "passed"


def test_destination_rule_credential_for_the_upstream(edge: Edge) -> None:
    def upstream() -> int:
        with connected(edge.ports["simple"], HOST, WITHOUT_CERTIFICATE) as connection:
            return connection.get("/upstream").status

    eventually(lambda: upstream() == 200, 10, "the upstream accepts the certificate")
    edge.write("upstream", upstream_rule(), tls_secret("upstream", FOREIGN, ca_crt=ROOT.pem))
    eventually(lambda: upstream() == 503, 10, "the upstream rejects a foreign certificate")
    edge.write("upstream", upstream_rule(), tls_secret("upstream", CLIENT, ca_crt=FOREIGN_CA.pem))
    eventually(lambda: upstream() == 503, 10, "the upstream is not trusted")
    edge.write("upstream", upstream_rule(), tls_secret("upstream", CLIENT, ca_crt=ROOT.pem))
    eventually(lambda: upstream() == 200, 10, "the original credentials work again")


def test_secret_of_another_namespace_is_not_served(edge: Edge) -> None:
    assert edge.refuses("foreign", WITHOUT_CERTIFICATE)
    assert "kubernetes://far/simple" in edge.pilot.log.read_text()
    assert edge.status("simple", WITHOUT_CERTIFICATE) == 200


def test_late_secret_is_used_when_it_appears(edge: Edge) -> None:
    assert edge.refuses("late", WITHOUT_CERTIFICATE)
    edge.write("late", tls_secret("late", SERVER))
    eventually(lambda: edge.status("late", WITHOUT_CERTIFICATE) == 200, 10, "the late secret is used")


def test_secret_is_replaced_without_losing_connections(edge: Edge) -> None:
    stop, failures, handshakes = threading.Event(), list[str](), [0]

    def connect_repeatedly() -> None:
        while not stop.is_set():
            try:
                edge.serial("simple")
                handshakes[0] += 1
            except OSError as error:
                failures.append(repr(error))

    with connected(edge.ports["simple"], HOST, WITHOUT_CERTIFICATE) as connection:
        assert connection.get().status == 200
        client_thread = threading.Thread(target=connect_repeatedly)
        client_thread.start()
        try:
            for issued in (RENEWED, SERVER):
                edge.write("simple", tls_secret("simple", issued))
                eventually(
                    lambda serial=issued.certificate.serial_number: edge.serial("simple") == serial,
                    10,
                    "the new certificate is shown",
                )
                assert connection.get().status == 200
        finally:
            stop.set()
            client_thread.join()
        assert connection.serial == SERVER.certificate.serial_number
    assert failures == []
    assert handshakes[0] > 1


def test_invalid_secret_is_reported_and_the_old_one_stays(edge: Edge) -> None:
    edge.write("simple", data_secret("simple", {"tls.crt": b"garbage", "tls.key": SERVER.private_key}))

    def unusable() -> list[dict[str, str]]:
        return [p for p in json.loads(edge.pilot.get("/debug/problemz")) if p["code"] == "credential-unusable"]

    problems = eventually(unusable, 10, "a problem")
    assert any("data[tls.crt] of Secret edge/simple" in problem["message"] for problem in problems)
    assert edge.serial("simple") == SERVER.certificate.serial_number
    edge.write("simple", tls_secret("simple", SERVER))
    eventually(lambda: not unusable(), 10, "the problem is resolved")
    assert edge.serial("simple") == SERVER.certificate.serial_number


def test_revoked_client_certificate_is_rejected(edge: Edge) -> None:
    assert edge.status("mutual", WITH_REVOKED) == 200
    edge.write("mutual", tls_secret("mutual", SERVER, ca_crt=CLIENT_CA.pem, ca_crl=CLIENT_CA.crl(REVOKED)))
    eventually(lambda: edge.refuses("mutual", WITH_REVOKED), 10, "the revoked certificate is refused")
    assert edge.status("mutual", WITH_CERTIFICATE) == 200
    edge.write("mutual", tls_secret("mutual", SERVER, ca_crt=CLIENT_CA.pem))
    eventually(lambda: edge.status("mutual", WITH_REVOKED) == 200, 10, "the revocation list is removed")


def test_logs_and_pages_have_no_keys(edge: Edge) -> None:
    texts = [
        edge.pilot.log.read_text(),
        *(edge.pilot.get(f"/debug/{page}") for page in ("config_dump?proxyID=edge-0.edge", "adsz", "problemz")),
    ]
    assert "kubernetes://simple" in texts[1]
    for text in texts:
        assert "PRIVATE KEY" not in text

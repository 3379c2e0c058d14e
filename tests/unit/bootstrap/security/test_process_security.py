"""Caller authentication, certificate issuers and TLS ports, by the settings."""

from __future__ import annotations

import datetime
from types import SimpleNamespace
from typing import Any

import pytest

from ca.authority import utc_now
from ca.errors import SigningError
from ca.pem import certificate_pem
from ca.self_signed import sign_root
from ca.service import CallerRefused
from pilot.bootstrap.ports import GrpcServices
from pilot.bootstrap.security import process_security as security
from pilot.bootstrap.security.certificate_authority import CertificateAuthority
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.process_security import ROW_KEY, Security, SecurityContext, TrustRootPublisher
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.flags import FlagError
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from pilot.settings.security import AuthoritySettings
from pilot.xds.authn.identity import (
    no_authentication,
    plaintext_caller,
    unchecked,
    verified_identity,
)
from pilot.xds.authn.oidc import JwtRule
from pilot.xds.net.listen_address import Address
from pilot.xds.push.discovery import Discovery
from testing.mesh.part_recorder import PartRecorder
from testing.security.certificates import root

PARTS = (
    "CertificateAuthority",
    "SignedCertificate",
    "PortCertificate",
    "NodeProxies",
    "ServiceAccountTokens",
    "CertificateService",
    "SecurePort",
)
EXTERNAL = {"EXTERNAL_CA": "ISTIOD_RA_KUBERNETES_API", "K8S_SIGNER": "example.com/mesh"}
SIGNED = {**EXTERNAL, "PILOT_CERT_PROVIDER": "k8s.io/example.com/mesh"}
ALIASES = {"alias": "Kubernetes", "other": "west"}


class Harness:
    """The security of a control plane, with stand-ins for its parts."""

    def __init__(
        self, journal: PartRecorder, environ: dict[str, str] | None = None, *flags: str, **overrides: Any
    ) -> None:
        self.journal, self.metrics, self.servers = journal, Metrics(), {"west": object()}
        self.settings, self.mesh = load(list(flags), environ or {}).settings, MeshConfig()
        self.db = Mesh(self.settings.mesh)
        servers: Any = self.servers
        arguments: dict[str, Any] = {
            "client": object(),
            "root_store": lambda: None,
            "read_secret": lambda: None,
            **overrides,
        }
        self.arguments = arguments
        context = SecurityContext(lambda: self.mesh, ALIASES, self.metrics, self.db, servers, **arguments)
        self.security = Security(self.settings, context)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> PartRecorder:
    recorder = PartRecorder()
    recorder.replace_classes(monkeypatch, security, *PARTS)
    return recorder


TLS, AUTHORITY = "the secure port's certificate", "the certificate authority"
SIGNERS, SERVER = "the external signer", "the control plane's certificate"


@pytest.mark.parametrize(
    ("environ", "flags", "parts"),
    [
        ({}, (), [AUTHORITY, TLS]),
        ({}, ("--secureGRPCAddr=",), [AUTHORITY]),
        ({"ENABLE_CA_SERVER": "false"}, (), [TLS]),
        (EXTERNAL, (), [AUTHORITY, SIGNERS, TLS]),
        (SIGNED, (), [SIGNERS, SERVER, TLS]),
        ({**SIGNED, "ENABLE_CA_SERVER": "false"}, (), [TLS]),
        ({"PILOT_CERT_PROVIDER": "k8s.io/example.com/mesh"}, (), [AUTHORITY, TLS]),
    ],
)
async def test_settings_select_certificate_issuers(
    journal: PartRecorder, environ: dict[str, str], flags: tuple[str, ...], parts: list[str]
) -> None:
    harness = Harness(journal, environ, *flags)
    assert [part.name for part in harness.security.parts()] == parts
    assert (harness.security.authority is not None) is (AUTHORITY in parts)
    assert (harness.security.external_signer is not None) is (SIGNERS in parts)
    identity_source: Any = harness.security.server_identity
    assert (identity_source.name if identity_source is not None else None) == (
        "SignedCertificate" if SERVER in parts else "CertificateAuthority" if AUTHORITY in parts else None
    )
    if SIGNERS in parts:
        registration: Any = harness.security.external_signer
        assert isinstance(registration, ExternalSigner)
    for part in harness.security.parts():
        if part.name != SIGNERS:
            await part.start()
            await part.stop()
    part_names = {AUTHORITY: "CertificateAuthority", SERVER: "SignedCertificate", TLS: "PortCertificate"}
    names = [part_names[name] for name in parts if name != SIGNERS]
    assert journal.lines == [f"{name}.{step}" for name in names for step in ("start", "stop")]


async def test_parts_receive_their_arguments(journal: PartRecorder) -> None:
    harness = Harness(journal, {**SIGNED, "REVISION": "blue", "POD_NAMESPACE": "mesh", "ISTIOD_CUSTOM_HOST": "a.com"})
    registration, signer, names = journal.part("SignedCertificate").args
    assert (registration, signer) == (harness.security.external_signer, "example.com/mesh")
    assert {"a.com", "istiod.mesh.svc", "istiod-blue.mesh.svc"} <= set(names())
    port = journal.part("PortCertificate")
    assert port.args == (
        harness.settings.secure_port,
        harness.security._rules,
        names,
        harness.security.server_identity,
    )
    assert port.kwargs == {"external_signer": registration}
    other: Any = harness.security.build_certificate("http/1.1")
    assert other.args == (
        harness.settings.secure_port,
        harness.security._rules,
        names,
        harness.security.server_identity,
        "http/1.1",
    )


async def test_authority_receives_the_root_store(journal: PartRecorder) -> None:
    harness = Harness(journal)
    settings, trust_domain, metrics, root_store, read_secret = journal.part("CertificateAuthority").args
    assert (settings, metrics, root_store, read_secret) == (
        harness.settings.authority,
        harness.metrics,
        harness.arguments["root_store"],
        harness.arguments["read_secret"],
    )
    assert trust_domain() == "cluster.local"


async def test_external_signers_need_an_api_server(journal: PartRecorder) -> None:
    with pytest.raises(FlagError, match=r"^EXTERNAL_CA requires an API server, whose signers issue certificates$"):
        Harness(journal, EXTERNAL, client=None)


async def test_mesh_config_changes_reach_the_external_signer(journal: PartRecorder) -> None:
    harness, configs = Harness(journal, EXTERNAL), list[Any]()
    registration: Any = harness.security.external_signer
    registration.on_mesh_config = configs.append
    harness.security.on_mesh_config(harness.mesh)
    assert configs == [harness.mesh]
    Harness(PartRecorder()).security.on_mesh_config(harness.mesh)


@pytest.mark.parametrize(
    ("environ", "authenticates_plain", "authenticates_secure"),
    [
        ({}, False, True),
        ({"XDS_AUTH_PLAINTEXT": "true"}, True, True),
        ({"XDS_AUTH": "false"}, False, False),
        ({"XDS_AUTH": "false", "XDS_AUTH_PLAINTEXT": "true"}, False, False),
    ],
)
async def test_settings_decide_which_ports_authenticate(
    journal: PartRecorder, environ: dict[str, str], authenticates_plain: bool, authenticates_secure: bool
) -> None:
    harness = Harness(journal, environ).security
    assert harness.plain.identify_peer is plaintext_caller
    assert harness.secure.identify_peer == harness._front.identify_peer
    assert (harness.plain.authenticate is not no_authentication) is authenticates_plain
    assert (harness.secure.authenticate is not no_authentication) is authenticates_secure
    assert harness.authorize is verified_identity
    assert (
        Harness(PartRecorder(), {**environ, "PILOT_ENABLE_XDS_IDENTITY_CHECK": "false"}).security.authorize is unchecked
    )


async def test_one_port_issues_certificates(journal: PartRecorder) -> None:
    harness = Harness(journal).security
    assert harness.certificate_service(harness.plain) is None
    service: Any = harness.certificate_service(harness.secure)
    with pytest.raises(TypeError, match="await"):  # the recorder returns no certificate
        await service.args[0](b"a request", ("spiffe://a",), 60, "")
    assert journal.pop_calls() == [("CertificateAuthority.sign", b"a request", ("spiffe://a",), 60, "")]
    assert service.args[2] is harness._metrics
    without_tls = Harness(PartRecorder(), {}, "--secureGRPCAddr=").security
    assert without_tls.certificate_service(without_tls.secure) is None
    assert without_tls.certificate_service(without_tls.plain) is not None
    none = Harness(PartRecorder(), {"ENABLE_CA_SERVER": "false"}).security
    assert none.certificate_service(none.secure) is None


async def test_certificate_requests_are_authenticated(journal: PartRecorder) -> None:
    harness = Harness(journal, {"XDS_AUTH_PLAINTEXT": "true"}, "--secureGRPCAddr=").security
    service: Any = harness.certificate_service(harness.plain)
    context = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:1", invocation_metadata=lambda: ())
    with pytest.raises(CallerRefused, match="client certificate: there is no client certificate"):
        await service.args[1](context)


async def test_external_signer_wins_over_the_authority(journal: PartRecorder) -> None:
    harness = Harness(journal, EXTERNAL).security
    assert harness.external_signer is not None
    service: Any = harness.certificate_service(harness.secure)
    sign, identify, metrics, impersonate = service.args
    with pytest.raises(SigningError, match="cannot decode the request"):
        await sign(b"a request", ("spiffe://a",), 60, "")
    assert metrics is harness._metrics
    assert callable(identify)
    with pytest.raises(CallerRefused, match=r"impersonation is disabled: spiffe://a"):
        await impersonate(None, "spiffe://a")


async def test_node_proxies_are_identified_by_tokens(journal: PartRecorder) -> None:
    environ = {
        "CA_TRUSTED_NODE_ACCOUNTS": "istio-system/ztunnel",
        "TOKEN_AUDIENCES": "one,two",
        "CLUSTER_ID": "Kubernetes",
    }
    harness = Harness(journal, environ)
    reviewers, audiences, trust_domain = journal.part("ServiceAccountTokens").args
    assert (reviewers, audiences, trust_domain()) == (harness.servers, ("one", "two"), "cluster.local")
    accounts, tokens, db, clusters = journal.part("NodeProxies").args
    assert (accounts, tokens, db) == (("istio-system/ztunnel",), journal.part("ServiceAccountTokens"), harness.db)
    assert clusters == {"": "Kubernetes", "Kubernetes": "Kubernetes", "alias": "Kubernetes", "other": "west"}


@pytest.mark.parametrize("environ", [{}, {"CA_TRUSTED_NODE_ACCOUNTS": "a/b", "XDS_AUTH": "false"}])
async def test_node_proxies_need_accounts_and_authentication(journal: PartRecorder, environ: dict[str, str]) -> None:
    Harness(journal, environ)
    assert "NodeProxies" not in journal.names


@pytest.mark.parametrize("in_kubernetes", [True, False])
async def test_provider_authenticates_csrs_outside_kubernetes(
    journal: PartRecorder, monkeypatch: pytest.MonkeyPatch, in_kubernetes: bool
) -> None:
    calls: list[Any] = []

    def record(*args: Any) -> Any:
        calls.append(args)
        return no_authentication

    monkeypatch.setattr(security, "with_provider", record)
    environ = {
        "TOKEN_ISSUER": "https://a",
        "AUDIENCE": "istio",
        **({"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if in_kubernetes else {}),
    }
    harness = Harness(journal, environ).security
    harness.certificate_service(harness.secure)
    [(authenticate, provider, trust_domain)] = calls
    assert authenticate is harness.secure.authenticate
    assert provider == (None if in_kubernetes else JwtRule("https://a", ("istio",)))
    assert trust_domain() == "cluster.local"


async def test_secure_port_arguments(journal: PartRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "make_server", lambda *args: args)
    harness = Harness(journal, {}, "--shutdownDuration=7s")
    services = GrpcServices("secure xDS", Address("", 1), ("handlers",), ("connections",))  # type: ignore[arg-type]
    port: Any = harness.security.build_port(services)
    server, front, certificate, trust_domain, address, connections, drain_time = port.args
    assert server == (harness.settings.serve, ("handlers",))
    assert (front, certificate, address, connections, str(drain_time)) == (
        harness.security._front,
        journal.part("PortCertificate"),
        Address("", 1),
        ("connections",),
        "7s",
    )
    assert trust_domain() == "cluster.local"


def make_discovery() -> Discovery:
    return Discovery(Mesh(), Metrics(), proxy_plan)


async def test_authority_roots_are_published_and_updated() -> None:
    server = make_discovery()
    authority = CertificateAuthority(AuthoritySettings(), lambda: "cluster.local", Metrics())
    await authority.start()
    try:
        await TrustRootPublisher(authority, None, server).start()
        assert authority.authority is not None
        signer = authority.authority.signer
        first = certificate_pem(signer.certificate).decode()
        assert server.db.authority_roots.peek(ROW_KEY) == (first,)
        authority.authority.renew(
            sign_root(signer.key, signer.certificate.subject, datetime.timedelta(days=9), utc_now())
        )
        (second,) = server.db.authority_roots.peek(ROW_KEY) or ()
        assert second != first
        assert second == certificate_pem(authority.authority.signer.certificate).decode()
    finally:
        await authority.stop()


async def test_no_roots_are_published_without_an_authority() -> None:
    server = make_discovery()
    await TrustRootPublisher(None, None, server).start()
    assert server.db.authority_roots.peek(ROW_KEY) == ()


async def test_published_roots_are_deduplicated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    discovery = Discovery(Mesh(), Metrics(), proxy_plan)
    first, second = root(1).certificate, root(2).certificate
    pem = [certificate_pem(certificate).decode() for certificate in (first, second)]
    reasons: list[Any] = []
    commit = discovery.commit

    def record(edits: Any, trigger: Any) -> None:
        reasons.append(trigger)
        commit(edits, trigger)

    monkeypatch.setattr(discovery, "commit", record)
    authority: Any = SimpleNamespace(authority=None, on_change=[])
    signers: Any = SimpleNamespace(roots=(second,))
    await TrustRootPublisher(authority, signers, discovery).start()
    assert discovery.db.authority_roots.peek(ROW_KEY) == (pem[1],), "the authority has not started"
    authority.authority = SimpleNamespace(signer=SimpleNamespace(roots=(first, second)))
    authority.on_change[0]()
    assert discovery.db.authority_roots.peek(ROW_KEY) == tuple(pem)
    assert reasons == [{"global": 1}] * 2

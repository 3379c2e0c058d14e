"""Who callers are, who issues certificates, and what ports with TLS are made of, by the settings."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest

from ca.service import CallerRefused
from pilot.bootstrap.ports import GrpcServices
from pilot.bootstrap.security import port_auth as authentication
from pilot.bootstrap.security import process_security as security
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.port_auth import (
    PortAuth,
    authenticate_csr,
    authorize_impersonation,
    build_authenticate,
    find_provider,
    find_reviewers,
    local_cluster_names,
    with_provider,
)
from pilot.bootstrap.security.process_security import Security, SecurityContext
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.lib.flags import FlagError
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings.parse import load
from pilot.xds.authn.identity import (
    Caller,
    IdentityError,
    no_authentication,
    plaintext_caller,
    unchecked,
    verified_identity,
)
from pilot.xds.authn.oidc import JwtRule, Provider
from pilot.xds.net.listen_address import Address
from testing.mesh.part_recorder import Journal
from testing.security.tokens import token

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


class Secured:
    """The security of a control plane whose parts are stand-ins."""

    def __init__(self, journal: Journal, environ: dict[str, str] | None = None, *flags: str, **given: Any) -> None:
        self.journal, self.metrics, self.servers = journal, Metrics(), {"west": object()}
        self.settings, self.mesh = load(list(flags), environ or {}).settings, MeshConfig()
        self.db = Mesh(self.settings.mesh)
        servers: Any = self.servers
        asked: dict[str, Any] = {"client": object(), "root_store": lambda: None, "read_secret": lambda: None, **given}
        self.asked = asked
        context = SecurityContext(lambda: self.mesh, ALIASES, self.metrics, self.db, servers, **asked)
        self.security = Security(self.settings, context)


@pytest.fixture
def journal(monkeypatch: pytest.MonkeyPatch) -> Journal:
    made = Journal()
    made.take_over(monkeypatch, security, *PARTS)
    return made


TLS, AUTHORITY = "the secure port's certificate", "the certificate authority"
SIGNERS, OWN = "the external signer", "the control plane's certificate"


@pytest.mark.parametrize(
    ("environ", "flags", "parts"),
    [
        ({}, (), [AUTHORITY, TLS]),
        ({}, ("--secureGRPCAddr=",), [AUTHORITY]),
        ({"ENABLE_CA_SERVER": "false"}, (), [TLS]),
        (EXTERNAL, (), [AUTHORITY, SIGNERS, TLS]),
        (SIGNED, (), [SIGNERS, OWN, TLS]),
        ({**SIGNED, "ENABLE_CA_SERVER": "false"}, (), [TLS]),
        ({"PILOT_CERT_PROVIDER": "k8s.io/example.com/mesh"}, (), [AUTHORITY, TLS]),
    ],
)
async def test_settings_say_who_issues_certificates(
    journal: Journal, environ: dict[str, str], flags: tuple[str, ...], parts: list[str]
) -> None:
    it = Secured(journal, environ, *flags)
    assert [part.name for part in it.security.parts()] == parts
    assert (it.security.authority is not None) is (AUTHORITY in parts)
    assert (it.security.external_signer is not None) is (SIGNERS in parts)
    trust: Any = it.security.server_identity
    assert (trust.name if trust is not None else None) == (
        "SignedCertificate" if OWN in parts else "CertificateAuthority" if AUTHORITY in parts else None
    )
    if SIGNERS in parts:
        registration: Any = it.security.external_signer
        assert isinstance(registration, ExternalSigner)
    for part in it.security.parts():
        if part.name != SIGNERS:
            await part.start()
            await part.stop()
    begun = {AUTHORITY: "CertificateAuthority", OWN: "SignedCertificate", TLS: "PortCertificate"}
    names = [begun[name] for name in parts if name != SIGNERS]
    assert journal.lines == [f"{name}.{what}" for name in names for what in ("start", "stop")]


async def test_everybody_is_given_what_he_needs(journal: Journal) -> None:
    it = Secured(journal, {**SIGNED, "REVISION": "blue", "POD_NAMESPACE": "mesh", "ISTIOD_CUSTOM_HOST": "a.com"})
    registration, signer, names = journal.one("SignedCertificate").given
    assert (registration, signer) == (it.security.external_signer, "example.com/mesh")
    assert {"a.com", "istiod.mesh.svc", "istiod-blue.mesh.svc"} <= set(names())
    port = journal.one("PortCertificate")
    assert port.given == (it.settings.secure_port, it.security._rules, names, it.security.server_identity)
    assert port.named == {"external_signer": registration}
    other: Any = it.security.build_certificate("http/1.1")
    assert other.given == (it.settings.secure_port, it.security._rules, names, it.security.server_identity, "http/1.1")


async def test_the_authority_is_given_where_its_root_is_kept(journal: Journal) -> None:
    it = Secured(journal)
    said, trust_domain, metrics, kept, read_secret = journal.one("CertificateAuthority").given
    assert (said, metrics, kept, read_secret) == (
        it.settings.authority,
        it.metrics,
        it.asked["root_store"],
        it.asked["read_secret"],
    )
    assert trust_domain() == "cluster.local"


async def test_signers_need_an_api_server(journal: Journal) -> None:
    with pytest.raises(FlagError, match=r"^EXTERNAL_CA requires an API server, whose signers issue certificates$"):
        Secured(journal, EXTERNAL, client=None)


async def test_another_mesh_config_reaches_the_signers(journal: Journal) -> None:
    it, told = Secured(journal, EXTERNAL), list[Any]()
    registration: Any = it.security.external_signer
    registration.on_mesh_config = told.append
    it.security.on_mesh_config(it.mesh)
    assert told == [it.mesh]
    Secured(Journal()).security.on_mesh_config(it.mesh)


@pytest.mark.parametrize(
    ("environ", "plain_is_known", "secure_is_known"),
    [
        ({}, False, True),
        ({"XDS_AUTH_PLAINTEXT": "true"}, True, True),
        ({"XDS_AUTH": "false"}, False, False),
        ({"XDS_AUTH": "false", "XDS_AUTH_PLAINTEXT": "true"}, False, False),
    ],
)
async def test_callers_prove_who_they_are_where_settings_say_so(
    journal: Journal, environ: dict[str, str], plain_is_known: bool, secure_is_known: bool
) -> None:
    it = Secured(journal, environ).security
    assert it.plain.identify_peer is plaintext_caller
    assert it.secure.identify_peer == it._front.identify_peer
    assert (it.plain.authenticate is not no_authentication) is plain_is_known
    assert (it.secure.authenticate is not no_authentication) is secure_is_known
    assert it.authorize is verified_identity
    assert Secured(Journal(), {**environ, "PILOT_ENABLE_XDS_IDENTITY_CHECK": "false"}).security.authorize is unchecked


async def test_certificates_are_issued_at_one_port(journal: Journal) -> None:
    it = Secured(journal).security
    assert it.certificate_service(it.plain) is None
    service: Any = it.certificate_service(it.secure)
    service.given[0]("a request")
    assert journal.take_calls() == [("CertificateAuthority.sign", "a request")]
    assert service.given[2] is it._metrics
    without_tls = Secured(Journal(), {}, "--secureGRPCAddr=").security
    assert without_tls.certificate_service(without_tls.secure) is None
    assert without_tls.certificate_service(without_tls.plain) is not None
    none = Secured(Journal(), {"ENABLE_CA_SERVER": "false"}).security
    assert none.certificate_service(none.secure) is None


async def test_whoever_asks_for_a_certificate_proves_who_he_is_on_that_port(journal: Journal) -> None:
    it = Secured(journal, {"XDS_AUTH_PLAINTEXT": "true"}, "--secureGRPCAddr=").security
    service: Any = it.certificate_service(it.plain)
    context = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:1", invocation_metadata=lambda: ())
    with pytest.raises(CallerRefused, match="client certificate: there is no client certificate"):
        await service.given[1](context)


async def test_signers_issue_before_the_authority(journal: Journal) -> None:
    it = Secured(journal, EXTERNAL).security
    assert it.external_signer is not None
    service: Any = it.certificate_service(it.secure)
    sign, identify, metrics, impersonate = service.given
    assert (sign, metrics) == (it.external_signer.sign, it._metrics)
    assert callable(identify)
    with pytest.raises(CallerRefused, match=r"impersonation is disabled: spiffe://a"):
        await impersonate(None, "spiffe://a")


async def test_proxies_of_nodes_are_told_by_their_tokens(journal: Journal) -> None:
    environ = {
        "CA_TRUSTED_NODE_ACCOUNTS": "istio-system/ztunnel",
        "TOKEN_AUDIENCES": "one,two",
        "CLUSTER_ID": "Kubernetes",
    }
    it = Secured(journal, environ)
    reviewers, audiences, trust_domain = journal.one("ServiceAccountTokens").given
    assert (reviewers, audiences, trust_domain()) == (it.servers, ("one", "two"), "cluster.local")
    accounts, tokens, db, clusters = journal.one("NodeProxies").given
    assert (accounts, tokens, db) == (("istio-system/ztunnel",), journal.one("ServiceAccountTokens"), it.db)
    assert clusters == {"": "Kubernetes", "Kubernetes": "Kubernetes", "alias": "Kubernetes", "other": "west"}


@pytest.mark.parametrize("environ", [{}, {"CA_TRUSTED_NODE_ACCOUNTS": "a/b", "XDS_AUTH": "false"}])
async def test_without_accounts_or_authentication_there_are_no_proxies_of_nodes(
    journal: Journal, environ: dict[str, str]
) -> None:
    Secured(journal, environ)
    assert "NodeProxies" not in journal.names


@pytest.mark.parametrize("in_kubernetes", [True, False])
async def test_outside_of_kubernetes_a_provider_is_asked_for_certificates_too(
    journal: Journal, monkeypatch: pytest.MonkeyPatch, in_kubernetes: bool
) -> None:
    asked: list[Any] = []

    def also(*given: Any) -> Any:
        asked.append(given)
        return no_authentication

    monkeypatch.setattr(security, "with_provider", also)
    environ = {
        "TOKEN_ISSUER": "https://a",
        "AUDIENCE": "istio",
        **({"KUBERNETES_SERVICE_HOST": "10.0.0.1"} if in_kubernetes else {}),
    }
    it = Secured(journal, environ).security
    it.certificate_service(it.secure)
    [(authenticate, provider, trust_domain)] = asked
    assert authenticate is it.secure.authenticate
    assert provider == (None if in_kubernetes else JwtRule("https://a", ("istio",)))
    assert trust_domain() == "cluster.local"


async def test_the_port_with_tls_is_made_of_what_it_serves(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security, "make_server", lambda *given: given)
    it = Secured(journal, {}, "--shutdownDuration=7s")
    services = GrpcServices("secure xDS", Address("", 1), ("handlers",), ("connections",))  # type: ignore[arg-type]
    port: Any = it.security.build_port(services)
    server, front, certificate, trust_domain, address, connections, patience = port.given
    assert server == (it.settings.serve, ("handlers",))
    assert (front, certificate, address, connections, str(patience)) == (
        it.security._front,
        journal.one("PortCertificate"),
        Address("", 1),
        ("connections",),
        "7s",
    )
    assert trust_domain() == "cluster.local"


# -- how callers prove who they are ------------------------------------------------------------------------------------


def test_the_own_cluster_is_known_by_its_aliases_too() -> None:
    assert local_cluster_names("Kubernetes", ALIASES) == ("", "Kubernetes", "alias")


def test_a_file_of_keys_takes_the_place_of_api_servers() -> None:
    servers: Any = {"west": object()}
    settings = load([], {}).settings.authentication
    assert find_reviewers(settings, "Kubernetes", ALIASES, servers) is servers
    settings = load(["--tokenKeys=/keys"], {}).settings.authentication
    assert list(find_reviewers(settings, "Kubernetes", ALIASES, servers)) == ["", "Kubernetes", "alias"]


async def test_whoever_has_proved_nothing_gets_no_certificate() -> None:
    context, caller = object(), Caller("10.0.0.1:1")
    met: list[Any] = []

    def meet(given: Any) -> Caller:
        met.append(given)
        return caller

    async def known(given: Caller) -> list[str]:
        assert given is caller
        return ["spiffe://a"]

    async def wrong(_: Caller) -> list[str]:
        raise IdentityError("the token has expired")

    assert await authenticate_csr(meet, known)(context) == ["spiffe://a"]
    assert met == [context]
    with pytest.raises(CallerRefused, match=r"^this port does not authenticate callers$"):
        await authenticate_csr(meet, no_authentication)(context)
    with pytest.raises(CallerRefused, match=r"^the token has expired$"):
        await authenticate_csr(meet, wrong)(context)


async def test_proxies_of_nodes_may_ask_in_the_name_of_others() -> None:
    entrance, asked = PortAuth(lambda context: Caller("10.0.0.1:1"), no_authentication), list[Any]()

    async def check(caller: Caller, identity: str) -> None:
        asked.append((caller.address, identity))
        if identity == "wrong":
            raise IdentityError("no pod on the node runs as that")

    proxies: Any = SimpleNamespace(check=check)
    impersonate = authorize_impersonation(entrance.identify_peer, proxies)
    await impersonate(None, "right")
    with pytest.raises(CallerRefused, match=r"^no pod on the node runs as that$"):
        await impersonate(None, "wrong")
    assert asked == [("10.0.0.1:1", "right"), ("10.0.0.1:1", "wrong")]
    with pytest.raises(CallerRefused, match=r"^impersonation is disabled"):
        await authorize_impersonation(entrance.identify_peer, None)(None, "right")


def test_tokens_of_a_provider_are_verified_by_its_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[Any, ...]] = []

    def noting(*args: Any) -> Any:
        given.append(args)
        return SimpleNamespace(identify=no_authentication)

    monkeypatch.setattr(authentication, "OidcTokens", noting)
    rule = JwtRule("https://a", ("istio",))
    with_provider(unknown, rule, lambda: "td")
    build_authenticate(
        load([], {"JWT_RULE": '{"issuer": "https://a", "audiences": ["istio"]}'}).settings.authentication,
        {},
        lambda: "td",
    )
    for found, provider, trust_domain in given:
        assert (found, type(provider), trust_domain()) == (rule, Provider, "td")
    assert len(given) == 2


async def unknown(_: Caller) -> list[str]:
    raise IdentityError("nobody knows")


@pytest.mark.parametrize(
    ("said", "own", "warning"),
    [
        (
            {"TOKEN_ISSUER": "https://a"},
            None,
            "tokens of https://a are not accepted for certificate requests because AUDIENCE is not set",
        ),
        (
            {},
            "nonsense",
            "FILE: cannot determine the issuer of the control plane's own token: invalid token: Not enough segments",
        ),
        ({}, token(aud=7), "FILE: cannot determine the issuer of the control plane's own token: "),
        ({"TOKEN_ISSUER": "https://a", "AUDIENCE": "istio"}, "nonsense", None),
    ],
)
def test_why_no_provider_is_known_is_said(
    tmp_path: pathlib.Path, said: dict[str, str], own: str | None, warning: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "istio-token"
    if own is not None:
        path.write_text(own)
    find_provider(load([], said).settings.authentication, False, str(path))
    told = [message.replace(str(path), "FILE") for message in caplog.messages]
    assert len(told) == (0 if warning is None else 1)
    assert warning is None or told[0].startswith(warning)

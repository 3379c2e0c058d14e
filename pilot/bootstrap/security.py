"""Who callers are, which certificates they get, and how they come to the ports: all of it that one process has once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from ca.rotation import Store
from ca.service import CertificateService
from pilot.bootstrap.authentication import (
    Entrance,
    also_by_provider,
    find_provider,
    find_reviewers,
    for_certificates,
    for_impersonation,
    make_authenticate,
    own_names,
)
from pilot.bootstrap.certificate_authority import CertificateAuthority, ReadSecret
from pilot.bootstrap.external_signer import Registration
from pilot.bootstrap.part import Part
from pilot.bootstrap.ports import GrpcServices, SecurePort
from pilot.bootstrap.server_certificate import PortCertificate, dns_names
from pilot.bootstrap.signed_certificate import PROVIDER, SignedCertificate, Trust
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.kube.client import ApiClient
from pilot.lib.flags import FlagError
from pilot.lib.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings
from pilot.settings.security import AuthoritySettings
from pilot.xds.authn.node_proxies import NodeProxies
from pilot.xds.authn.service_account import Reviewer, ServiceAccountTokens
from pilot.xds.identity import Authorize, nobody, plain_caller, unchecked, verified_identity
from pilot.xds.server import make_server
from pilot.xds.tls.context import parse_rules
from pilot.xds.tls.front import TlsFront


class Security:
    """`authority` is None where it is switched off, or signers of the API server are all that is needed; `trust` is what proxies trust the control
    plane by. `mesh_config` returns the one of now, `db` has the Pods. `servers` review tokens, by names of
    clusters, `kept` returns where a self-signed root is kept, `read_secret` the data of a Secret, and `client` asks the own one, where there are API
    servers. FlagError where settings cannot be understood."""

    def __init__(
        self,
        settings: Settings,
        mesh_config: Callable[[], MeshConfig],
        aliases: Mapping[str, str],
        metrics: Metrics,
        db: Mesh,
        servers: Mapping[str, Reviewer] = MappingProxyType({}),
        kept: Callable[[], Store] | None = None,
        read_secret: ReadSecret | None = None,
        client: ApiClient | None = None,
    ) -> None:
        self._settings, self._mesh_config, self._metrics = settings, mesh_config, metrics
        port = settings.secure_port
        said = settings.authority
        self.registration = _registration(said, client, mesh_config) if said.enabled and said.external else None
        self._signed = self._make_signed(port.certificate_provider)
        own = said.enabled and self._signed is None
        self.authority = CertificateAuthority(said, self.trust_domain, metrics, kept, read_secret) if own else None
        self.trust: Trust | None = self._signed or self.authority
        self._rules = rules = parse_rules(port.cipher_suites, port.oldest_version, settings.mesh.tls.compliance_policy)
        self._front, self._certificate = (
            TlsFront(),
            PortCertificate(port, rules, self._dns_names, self.trust, registration=self.registration),
        )
        reviewers = find_reviewers(settings.authentication, settings.mesh.registry.cluster_id, aliases, servers)
        known = make_authenticate(settings.authentication, reviewers, self.trust_domain)
        self._provider = find_provider(settings.authentication, bool(settings.kubernetes.service_host))
        self._node_proxies = _node_proxies(settings, reviewers, aliases, self.trust_domain, db)
        self.plain = Entrance(plain_caller, known if settings.authentication.plaintext else nobody)
        self.secure = Entrance(self._front.meet, known)

    def make_certificate(self, protocol: str) -> PortCertificate:
        """Returns the certificate of a further port with TLS on which a protocol is spoken."""
        return PortCertificate(self._settings.secure_port, self._rules, self._dns_names, self.trust, protocol)

    def _make_signed(self, provider: str) -> SignedCertificate | None:
        """Returns the certificate of the control plane that a signer of the API server issues; None where that is not to be."""
        if self.registration is None or not provider.startswith(PROVIDER):
            return None
        return SignedCertificate(self.registration, provider.removeprefix(PROVIDER), self._dns_names)

    @property
    def authorize(self) -> Authorize:
        """Returns which of the identities that a caller has proved may be the proxy that it says it is."""
        return verified_identity if self._settings.authentication.identity_check else unchecked

    def configured(self, mesh: MeshConfig) -> None:
        """Takes another mesh config."""
        if self.registration is not None:
            self.registration.configured(mesh)

    def trust_domain(self) -> str:
        """Returns the trust domain that the mesh has now."""
        return self._mesh_config().trust_domain

    def parts(self) -> Iterator[Part]:
        """Yields what must have started before the port with TLS."""
        if self.authority is not None:
            yield Part("the certificate authority", self.authority.start, self.authority.stop)
        if self.registration is not None:
            yield Part("the signers of the API server", self.registration.start)
        if self._signed is not None:
            yield Part("the certificate of the control plane", self._signed.start, self._signed.stop)
        if self._settings.secure_port.address:
            yield Part("the certificate of the port with TLS", self._certificate.start, self._certificate.stop)

    def certificates(self, entrance: Entrance) -> CertificateService | None:
        """Returns the service that issues certificates to callers of an entrance: that with TLS, or the other one where there is none. None where
        certificates are not issued there."""
        chosen = self.secure if self._settings.secure_port.address else self.plain
        issuer = self.registration or self.authority
        if issuer is None or entrance is not chosen:
            return None
        authenticate = also_by_provider(entrance.authenticate, self._provider, self.trust_domain)
        identify, impersonate = (
            for_certificates(entrance.meet, authenticate),
            for_impersonation(entrance.meet, self._node_proxies),
        )
        return CertificateService(issuer.sign, identify, self._metrics, impersonate)

    def make_port(self, services: GrpcServices) -> SecurePort:
        """Returns the port with TLS."""
        assert services.address is not None
        server, patience = (
            make_server(self._settings.serve, services.handlers),
            self._settings.process.shutdown_duration,
        )
        return SecurePort(
            server, self._front, self._certificate, self.trust_domain, services.address, services.connections, patience
        )

    def _dns_names(self) -> tuple[str, ...]:
        settings = self._settings
        return dns_names(
            self._mesh_config(),
            settings.mesh.registry.namespace,
            settings.ingest.revision,
            settings.secure_port.custom_hosts,
        )


def _registration(
    settings: AuthoritySettings, client: ApiClient | None, mesh_config: Callable[[], MeshConfig]
) -> Registration:
    if client is None:
        raise FlagError("EXTERNAL_CA: there is no API server whose signers could issue certificates")
    return Registration(settings, client, mesh_config)


def _node_proxies(
    settings: Settings,
    reviewers: Mapping[str, Reviewer],
    aliases: Mapping[str, str],
    trust_domain: Callable[[], str],
    db: Mesh,
) -> NodeProxies | None:
    """Returns the proxies of nodes, which are told by their tokens; None where the settings name no accounts of theirs, or nobody reviews tokens."""
    accounts, own = settings.authority.node_accounts, settings.mesh.registry.cluster_id
    if not accounts or not settings.authentication.enabled:
        return None
    tokens = ServiceAccountTokens(reviewers, settings.authentication.token_audiences, trust_domain)
    return NodeProxies(accounts, tokens, db, {**aliases, **dict.fromkeys(own_names(own, aliases), own)})

"""Builds authentication, the certificate authority and the certificates of a process from the settings."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping

from ca.pem import certificate_pem
from ca.rotation import Store
from ca.service import CertificateService
from pilot.bootstrap.part import Part
from pilot.bootstrap.ports import GrpcServices
from pilot.bootstrap.security.certificate_authority import CertificateAuthority
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.fair_signing import BUILT_IN, EXTERNAL, FairSigning
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
from pilot.bootstrap.security.port_certificate import PortCertificate, dns_names
from pilot.bootstrap.security.secret_store import ReadSecret
from pilot.bootstrap.security.secure_port import SecurePort
from pilot.bootstrap.security.signed_certificate import PROVIDER, ServerIdentity, SignedCertificate
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.kube.api_client import ApiClient
from pilot.lib.flags import FlagError
from pilot.lib.metrics.metrics import Metrics
from pilot.mesh.tables.database import Mesh
from pilot.settings import Settings
from pilot.settings.security import AuthoritySettings
from pilot.xds.authn.identity import Authorize, no_authentication, plaintext_caller, unchecked, verified_identity
from pilot.xds.authn.node_proxies import NodeProxies
from pilot.xds.authn.service_account import Reviewer, ServiceAccountTokens
from pilot.xds.push.discovery import Discovery
from pilot.xds.server import make_server
from pilot.xds.tls.context import parse_rules
from pilot.xds.tls.front import TlsFront

ROW_KEY = "authority"


@dataclasses.dataclass(frozen=True)
class SecurityContext:
    """The parts of a process that security depends on.

    mesh_config: Returns the current mesh config.
    aliases: Mapping from aliases to clusters.
    db: Contains the Pods that node proxies act for.
    reviewers: Token reviewers, keyed by cluster name, if there are API servers.
    root_store: Returns the store of the self-signed root, if there is an API server.
    read_secret: Reads a Secret, if there is an API server.
    client: Client of the local cluster's API server, if there is one.
    """

    mesh_config: Callable[[], MeshConfig]
    aliases: Mapping[str, str]
    metrics: Metrics
    db: Mesh
    reviewers: Mapping[str, Reviewer] = dataclasses.field(default_factory=dict)
    root_store: Callable[[], Store] | None = None
    read_secret: ReadSecret | None = None
    client: ApiClient | None = None


class Security:
    """Authenticates callers and issues certificates. Raise FlagError if a setting is invalid.

    `authority` is None if the built-in authority is disabled or not needed. Proxies verify the control plane with the
    roots of `server_identity`.
    """

    def __init__(self, settings: Settings, context: SecurityContext) -> None:
        self._settings, self._mesh_config, self._metrics = settings, context.mesh_config, context.metrics
        port, authority = settings.secure_port, settings.authority
        self.external_signer = (
            _external_signer(authority, context.client, context.mesh_config)
            if authority.enabled and authority.external
            else None
        )
        self._signed = self._build_signed_certificate(port.certificate_provider)
        is_built_in = authority.enabled and self._signed is None
        self.authority = (
            CertificateAuthority(authority, self.trust_domain, context.metrics, context.root_store, context.read_secret)
            if is_built_in
            else None
        )
        self.server_identity: ServerIdentity | None = self._signed or self.authority
        self._rules = rules = parse_rules(port.cipher_suites, port.oldest_version, settings.mesh.tls.compliance_policy)
        self._front = TlsFront(on_limit=context.metrics.caller_limit_exceeded)
        self._certificate = PortCertificate(
            port, rules, self._dns_names, self.server_identity, external_signer=self.external_signer
        )
        local_cluster = settings.mesh.registry.cluster_id
        reviewers = find_reviewers(settings.authentication, local_cluster, context.aliases, context.reviewers)
        authenticate = build_authenticate(settings.authentication, reviewers, self.trust_domain)
        self._provider = find_provider(settings.authentication, bool(settings.kubernetes.service_host))
        self._node_proxies = _node_proxies(settings, reviewers, context.aliases, self.trust_domain, context.db)
        plaintext = authenticate if settings.authentication.plaintext else no_authentication
        self.plain = PortAuth(plaintext_caller, plaintext)
        self.secure = PortAuth(self._front.identify_peer, authenticate)

    def build_certificate(self, protocol: str) -> PortCertificate:
        """Return the certificate of the webhooks' port, whose clients use `protocol`."""
        settings = self._settings
        return PortCertificate(
            settings.secure_port,
            self._rules,
            self._dns_names,
            self.server_identity,
            protocol,
            client_roots_file=settings.webhook.client_roots_file,
        )

    def _build_signed_certificate(self, provider: str) -> SignedCertificate | None:
        """Return the control plane's certificate from a Kubernetes signer, or None if another issuer is configured."""
        if self.external_signer is None or not provider.startswith(PROVIDER):
            return None
        return SignedCertificate(self.external_signer, provider.removeprefix(PROVIDER), self._dns_names)

    @property
    def authorize(self) -> Authorize:
        """Return the check of whether a caller's identities match the proxy that the caller claims to be."""
        return verified_identity if self._settings.authentication.identity_check else unchecked

    def on_mesh_config(self, mesh: MeshConfig) -> None:
        """Handle a change of the mesh config."""
        if self.external_signer is not None:
            self.external_signer.on_mesh_config(mesh)

    def trust_domain(self) -> str:
        """Return the current trust domain of the mesh."""
        return self._mesh_config().trust_domain

    def parts(self) -> Iterator[Part]:
        """Yield the parts that start before the secure port."""
        if self.authority is not None:
            yield Part("the certificate authority", self.authority.start, self.authority.stop)
        if self.external_signer is not None:
            yield Part("the external signer", self.external_signer.start)
        if self._signed is not None:
            yield Part("the control plane's certificate", self._signed.start, self._signed.stop)
        if self._settings.secure_port.address:
            yield Part("the secure port's certificate", self._certificate.start, self._certificate.stop)

    def certificate_service(self, auth: PortAuth) -> CertificateService | None:
        """Return the service that issues certificates on a port, or None if the port has none.

        The service is on the secure port. Without a secure port, it is on the plaintext port.
        """
        serving_auth = self.secure if self._settings.secure_port.address else self.plain
        issuer = self.external_signer or self.authority
        if issuer is None or auth is not serving_auth:
            return None
        authenticate = with_provider(auth.authenticate, self._provider, self.trust_domain)
        on_rejected = functools.partial(self._metrics.caller_limit_exceeded, "csrs")
        limits = BUILT_IN if self.external_signer is None else EXTERNAL
        return CertificateService(
            FairSigning(issuer.sign, *limits, on_rejected).sign,
            authenticate_csr(auth.identify_peer, authenticate),
            self._metrics,
            authorize_impersonation(auth.identify_peer, self._node_proxies),
        )

    def build_port(self, services: GrpcServices) -> SecurePort:
        """Return the secure port."""
        assert services.address is not None
        return SecurePort(
            make_server(self._settings.serve, services.handlers),
            self._front,
            self._certificate,
            self.trust_domain,
            services.address,
            services.connections,
            self._settings.process.shutdown_duration,
        )

    def _dns_names(self) -> tuple[str, ...]:
        settings = self._settings
        return dns_names(
            self._mesh_config(),
            settings.mesh.registry.namespace,
            settings.ingest.revision,
            settings.secure_port.custom_hosts,
        )


class TrustRootPublisher:
    """Publishes the roots of the authority and of the external signer to proxies, as a row of `Mesh.authority_roots`.

    A mesh may have several roots. Without an authority, only the mesh config determines them.
    """

    def __init__(
        self, authority: CertificateAuthority | None, external_signer: ExternalSigner | None, discovery: Discovery
    ) -> None:
        self._authority, self._external_signer, self._discovery = authority, external_signer, discovery

    async def start(self) -> None:
        """Publish the current roots now, and new roots whenever they change."""
        if self._authority is not None:
            self._authority.on_change.append(self._publish)
        self._publish()

    def _publish(self) -> None:
        authority = self._authority.authority if self._authority is not None else None
        own_roots = authority.signer.roots if authority is not None else ()
        external_roots = self._external_signer.roots if self._external_signer is not None else ()
        roots = tuple(certificate_pem(root).decode() for root in dict.fromkeys((*own_roots, *external_roots)))
        self._discovery.commit([(self._discovery.db.authority_roots, ROW_KEY, roots)], {"global": 1})


def _external_signer(
    settings: AuthoritySettings, client: ApiClient | None, mesh_config: Callable[[], MeshConfig]
) -> ExternalSigner:
    if client is None:
        raise FlagError("EXTERNAL_CA requires an API server, whose signers issue certificates")
    return ExternalSigner(settings, client, mesh_config)


def _node_proxies(
    settings: Settings,
    reviewers: Mapping[str, Reviewer],
    aliases: Mapping[str, str],
    trust_domain: Callable[[], str],
    db: Mesh,
) -> NodeProxies | None:
    """Return the check for node proxies.

    Return None if the settings name no service accounts of node proxies or disable authentication.
    """
    accounts, local_cluster = settings.authority.node_accounts, settings.mesh.registry.cluster_id
    if not accounts or not settings.authentication.enabled:
        return None
    tokens = ServiceAccountTokens(reviewers, settings.authentication.token_audiences, trust_domain)
    local_names = dict.fromkeys(local_cluster_names(local_cluster, aliases), local_cluster)
    return NodeProxies(accounts, tokens, db, {**aliases, **local_names})

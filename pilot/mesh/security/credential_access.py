"""The access of proxies to credentials.

Access is decided for each proxy before a credential is read, and the decision is part of the cache key. Proxies
therefore never share a result that one of them may not read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pilot.config.key_material import Flaw
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY
from pilot.config.kinds.istio import GATEWAY
from pilot.config.kinds.kubernetes import SECRET
from pilot.config.mesh.proxy_config import PrivateKeyProvider
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.lib.spiffe import parse_identity
from pilot.mesh.gateway_api.reference_grants import ReferenceKey, may_refer
from pilot.mesh.gateways.gateways import gateway_selection_key, servers
from pilot.mesh.model.credential_key import CA_SUFFIX, CredentialKey, parse_field, parse_resource
from pilot.mesh.model.facets import CredentialReaderFacet
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.clusters import cluster_of
from pilot.mesh.tables.credentials import Credential, credential, lists_secrets
from pilot.mesh.tables.database import AccountKey, Mesh
from pilot.mesh.tables.proxies import find_proxy
from pilot.mesh.tables.proxy_config import proxy_config

KEY_PROVIDER_TYPES = {
    "cryptomb": "envoy.extensions.private_key_providers.cryptomb.v3alpha.CryptoMbPrivateKeyMethodConfig",
    "qat": "envoy.extensions.private_key_providers.qat.v3alpha.QatPrivateKeyMethodConfig",
}
"""Extension types of private key providers, as listed by Envoy builds."""
_CLIENT_CERTIFICATE_MODES = ("MUTUAL", "OPTIONAL_MUTUAL")


class GatewayCredentials(NamedTuple):
    """The credentials that a Gateway refers to: its certificates, and the roots that verify client certificates.

    Credentials that the control plane does not provide are omitted.
    """

    certificates: frozenset[CredentialKey] = frozenset()
    roots: frozenset[CredentialKey] = frozenset()


def account_of(db: Mesh, proxy: Proxy) -> AccountKey | None:
    """Return the verified service account of a proxy, or None if it has no verified identity."""
    parsed = parse_identity(proxy.identity)
    return AccountKey(cluster_of(db, proxy), parsed.namespace, parsed.service_account) if parsed is not None else None


@derived
def credential_reader_facet(db: Mesh, node_id: str) -> CredentialReaderFacet | None:
    """Return the credentials that a proxy may read, or None while a query to the API server is pending."""
    proxy = find_proxy(db, node_id)
    account = account_of(db, proxy)
    if account is None:
        return CredentialReaderFacet("", "")
    lists = lists_secrets(db, account)
    if lists is None:
        return None
    selected = gateway_selection_key(db, node_id).gateways if proxy.type is NodeType.ROUTER else ()
    credentials = [(key, gateway_credentials(db, key, account.namespace)) for key in selected]
    return CredentialReaderFacet(
        account.namespace,
        account.cluster,
        lists,
        referred=frozenset(name for key, names in credentials for name in _referred(db, account, key, names)),
        roots=_roots(names for _, names in credentials),
        key_provider=_key_provider(proxy, proxy_config(db, node_id).private_key_provider),
    )


def _key_provider(proxy: Proxy, provider: PrivateKeyProvider | None) -> PrivateKeyProvider | None:
    """Return the private key provider in a proxy's config, or None if the proxy's build does not support it."""
    if provider is None or proxy.extensions is None:
        return provider
    return (
        provider if KEY_PROVIDER_TYPES["qat" if provider.cryptomb is None else "cryptomb"] in proxy.extensions else None
    )


@derived
def gateway_credentials(db: Mesh, gateway: ObjectKey, namespace: str) -> GatewayCredentials:
    """Return the credentials of a Gateway. Names without a namespace refer to `namespace`, which is that of the
    routers."""
    certificates: set[CredentialKey | None] = set()
    roots: set[CredentialKey | None] = set()
    for server in servers(db, gateway):
        if server.tls is not None:
            certificates.update(parse_field(text, namespace) for text in certificate_fields(server.tls))
            roots.update(parse_field(text, namespace) for text in root_fields(server.tls))
    return GatewayCredentials(frozenset(filter(None, certificates)), frozenset(filter(None, roots)))


def certificate_fields(tls: ServerTLSSettings) -> tuple[str, ...]:
    """Return the names of a server's certificates."""
    return tuple(name for name in tls.credential_names or (tls.credential_name,) if name)


def root_fields(tls: ServerTLSSettings) -> tuple[str, ...]:
    """Return the name of the roots that verify client certificates, or () if the server does not request them.

    It is the configured name or, by default, the name of the first certificate followed by a suffix.
    """
    if tls.mode not in _CLIENT_CERTIFICATE_MODES or not (names := certificate_fields(tls)):
        return ()
    return (tls.ca_cert_credential_name or names[0] + CA_SUFFIX,)


def _referred(
    db: Mesh, account: AccountKey, gateway: ObjectKey, credentials: GatewayCredentials
) -> Iterable[CredentialKey]:
    """Yield the Secrets that a Gateway refers to, if the service account belongs to the Gateway's routers.

    For a Gateway of the Gateway API, the service account must be that of its workloads. Secrets in other namespaces
    require a ReferenceGrant.
    """
    row = GATEWAY.get(db, gateway)
    origin = row.origin if row is not None else None
    home = origin.namespace if origin is not None and origin.namespace else gateway.namespace
    if account.namespace != home or (origin is not None and origin.account not in ("", account.name)):
        return
    owner = origin.parents[0] if origin is not None and origin.services else None
    kind = owner.kind if owner is not None else KUBERNETES_GATEWAY.id
    for name in credentials.certificates | credentials.roots:
        reference = ReferenceKey(kind, gateway.namespace, SECRET.id, name.namespace, name.name.removesuffix(CA_SUFFIX))
        if name.source == "gateway Secret" and may_refer(db, reference):
            yield name


def _roots(gateways: Iterable[GatewayCredentials]) -> frozenset[CredentialKey]:
    """Return the credentials that are used as roots although their names lack the suffix.

    Credentials that are also used as certificates are excluded.
    """
    credentials = tuple(gateways)
    roots = frozenset(name for one in credentials for name in one.roots if not name.is_roots)
    return roots.difference(*(one.certificates for one in credentials))


def readable_credential(db: Mesh, resource: str, reader: CredentialReaderFacet) -> Credential | Flaw | None:
    """Return the credential for an SDS resource, as `credential` does, or None if the proxy may not read it."""
    name = parse_resource(resource, reader.namespace)
    if name is None or not _may_read(reader, name):
        return None
    return credential(db, name, reader.cluster, name.is_roots or name in reader.roots)


def _may_read(reader: CredentialReaderFacet, name: CredentialKey) -> bool:
    if not reader.namespace:
        return False
    match name.source:
        case "ConfigMap":
            return True
        case "gateway Secret":
            return name in reader.referred
    return name.namespace == reader.namespace and (name.is_roots or reader.lists_secrets)

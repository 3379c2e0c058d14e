"""Builds secrets: the certificates and roots that listeners and clusters name, for the proxies that may read them.

https://www.envoyproxy.io/docs/envoy/latest/configuration/security/secret
"""

from __future__ import annotations

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, secret_pb2
from google.protobuf import any_pb2

from pilot.config.key_material import Flaw, KeyPair, Roots, Value
from pilot.config.mesh.proxy_config import PrivateKeyProvider
from pilot.config.validation.key_material import usable_staple
from pilot.derive import Lookup, derived
from pilot.envoy.resource import Resource, length_delimited
from pilot.envoy.well_known_types import TYPE_PREFIX, build_duration
from pilot.lib.xds_types import SECRET
from pilot.mesh.model.facets import CredentialReaderFacet
from pilot.mesh.security.credential_access import KEY_PROVIDER_TYPES, readable_credential
from pilot.mesh.tables.database import Mesh


@derived
def secret(db: Mesh, name: str, reader: CredentialReaderFacet) -> Resource | None:
    """Returns the secret of a name for proxies that may read what `reader` says. Where there is none, it may not be read or it is of no use
    to Envoy, it returns None: these are not told apart."""
    found = readable_credential(db, name, reader)
    return (
        None
        if found is None or isinstance(found, Flaw)
        else Resource.of(SECRET, build_secret(name, found, reader.key_provider))
    )


secrets: Lookup[str, [frozenset[str], CredentialReaderFacet], Resource] = Lookup("secrets", secret)
"""The secrets that proxies ask for by name, for one reader."""


def build_secret(name: str, found: KeyPair | Roots, provider: PrivateKeyProvider | None = None) -> secret_pb2.Secret:
    """Returns the secret of a credential that Envoy takes; `provider` gets the key where there is one."""
    if isinstance(found, Roots):
        context = common_pb2.CertificateValidationContext(
            trusted_ca=_inline(found.certificates), crl=_inline(found.revoked)
        )
        return secret_pb2.Secret(name=name, validation_context=context)
    certificate = common_pb2.TlsCertificate(
        certificate_chain=_inline(found.chain), ocsp_staple=_inline(usable_staple(found))
    )
    key = base_pb2.DataSource(inline_bytes=found.private_key.content)
    provided = build_key_provider(provider, key) if provider is not None else None
    if provided is not None:
        certificate.private_key_provider.CopyFrom(provided)
    else:
        certificate.private_key.CopyFrom(key)
    return secret_pb2.Secret(name=name, tls_certificate=certificate)


def _inline(value: Value | None) -> base_pb2.DataSource | None:
    return base_pb2.DataSource(inline_bytes=value.content) if value is not None else None


def build_key_provider(provider: PrivateKeyProvider, key: base_pb2.DataSource) -> common_pb2.PrivateKeyProvider | None:
    """Returns the provider with a key; None where the mesh's config names none."""
    for name, settings in (("cryptomb", provider.cryptomb), ("qat", provider.qat)):
        if settings is not None:
            delay = build_duration(settings.poll_delay or 0)
            value = length_delimited(1, key.SerializeToString()) + length_delimited(2, delay.SerializeToString())
            config = any_pb2.Any(type_url=TYPE_PREFIX + KEY_PROVIDER_TYPES[name], value=value)
            return common_pb2.PrivateKeyProvider(
                provider_name=name, typed_config=config, fallback=bool(settings.fallback)
            )
    return None

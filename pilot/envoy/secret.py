"""The certificates and CA certificates that listeners and clusters reference. Proxies only receive those they may read.

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
    """Return a secret by name, for proxies with the same access rights.

    The result is None if the secret does not exist, may not be read or cannot be used by Envoy. A proxy cannot tell
    these cases apart.
    """
    credential = readable_credential(db, name, reader)
    return (
        None
        if credential is None or isinstance(credential, Flaw)
        else Resource.of(SECRET, build_secret(name, credential, reader.key_provider))
    )


secrets: Lookup[str, [frozenset[str], CredentialReaderFacet], Resource] = Lookup("secrets", secret)
"""The secrets that proxies with the same access rights request by name."""


def build_secret(
    name: str, credential: KeyPair | Roots, provider: PrivateKeyProvider | None = None
) -> secret_pb2.Secret:
    """Return the secret for a valid credential.

    If `provider` sets a private key provider, the private key is part of the provider's configuration.
    """
    if isinstance(credential, Roots):
        context = common_pb2.CertificateValidationContext(
            trusted_ca=_inline(credential.certificates), crl=_inline(credential.revoked)
        )
        return secret_pb2.Secret(name=name, validation_context=context)
    certificate = common_pb2.TlsCertificate(
        certificate_chain=_inline(credential.chain), ocsp_staple=_inline(usable_staple(credential))
    )
    key = base_pb2.DataSource(inline_bytes=credential.private_key.content)
    provided_key = build_key_provider(provider, key) if provider is not None else None
    if provided_key is not None:
        certificate.private_key_provider.CopyFrom(provided_key)
    else:
        certificate.private_key.CopyFrom(key)
    return secret_pb2.Secret(name=name, tls_certificate=certificate)


def _inline(value: Value | None) -> base_pb2.DataSource | None:
    return base_pb2.DataSource(inline_bytes=value.content) if value is not None else None


def build_key_provider(provider: PrivateKeyProvider, key: base_pb2.DataSource) -> common_pb2.PrivateKeyProvider | None:
    """Return the message for the private key provider, CryptoMB or QAT, or None if the mesh config sets neither.

    The messages belong to Envoy's contrib API, which xds-protos lacks. In both, field 1 is the key and field 2 is the
    poll delay.
    https://www.envoyproxy.io/docs/envoy/latest/api-v3/contrib/contrib
    """
    for name, settings in (("cryptomb", provider.cryptomb), ("qat", provider.qat)):
        if settings is not None:
            delay = build_duration(settings.poll_delay or 0)
            value = length_delimited(1, key.SerializeToString()) + length_delimited(2, delay.SerializeToString())
            config = any_pb2.Any(type_url=TYPE_PREFIX + KEY_PROVIDER_TYPES[name], value=value)
            return common_pb2.PrivateKeyProvider(
                provider_name=name, typed_config=config, fallback=bool(settings.fallback)
            )
    return None

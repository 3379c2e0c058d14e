"""TLS that listeners terminate: mTLS on sidecars' inbound ports, and the TLS of Gateway and Sidecar servers.

https://istio.io/latest/docs/reference/config/networking/gateway/#ServerTLSSettings
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from google.protobuf import wrappers_pb2

from pilot.config.mesh.mesh_config import TLSConfig
from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.validation.traffic.tls import CIPHER_SUITES, CURVES
from pilot.envoy import names
from pilot.envoy.transport_socket.certificate_validation import build_combined, build_validation
from pilot.envoy.transport_socket.sds import SdsProvider, build_credential_secret, build_file_secret
from pilot.envoy.transport_socket.tls_compliance import apply_compliance
from pilot.envoy.transport_socket.tls_defaults import (
    minimum_tls_version,
    requires_tls_1_3,
    supported_ciphers,
    supported_curves,
)
from pilot.mesh.model.facets import SecretServersFacet, TlsFilesFacet

HTTP_ALPN = ("h2", "http/1.1")
HTTP3_ALPN = ("h3",)
PEER_ALPN = ("istio-peer-exchange", *HTTP_ALPN)  # TCP between peers, which exchange metadata first
MESH_CIPHERS = (
    "ECDHE-ECDSA-AES256-GCM-SHA384",
    "ECDHE-RSA-AES256-GCM-SHA384",
    "ECDHE-ECDSA-AES128-GCM-SHA256",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "AES256-GCM-SHA384",
    "AES128-GCM-SHA256",
)
_PROTOCOLS = {
    "TLS_AUTO": common_pb2.TlsParameters.TLS_AUTO,
    "TLSV1_0": common_pb2.TlsParameters.TLSv1_0,
    "TLSV1_1": common_pb2.TlsParameters.TLSv1_1,
    "TLSV1_2": common_pb2.TlsParameters.TLSv1_2,
    "TLSV1_3": common_pb2.TlsParameters.TLSv1_3,
}


class ServerCertificates(NamedTuple):
    """Sources of a listener's certificates: the proxy's own files, and SDS servers in the Pod or in the mesh."""

    files: TlsFilesFacet = TlsFilesFacet()
    servers: SecretServersFacet = SecretServersFacet()
    provider: SdsProvider | None = None


def build_inbound_context(
    certificates: ServerCertificates,
    alpn: Sequence[str],
    trust_domains: Iterable[str],
    mesh_mtls: TLSConfig | None = None,
    compliance: str = "",
) -> tls_pb2.DownstreamTlsContext:
    """Return the mTLS context for a sidecar's inbound port. Clients must belong to one of the trust domains.

    `alpn` is `HTTP_ALPN`, or `PEER_ALPN` for TCP. The ALPN `istio`, which clients offer, is not included, because it
    would displace the protocol that they negotiate.
    """
    common = tls_pb2.CommonTlsContext(alpn_protocols=alpn)
    parameters = common.tls_params
    parameters.cipher_suites.extend(supported_ciphers(mesh_mtls) or MESH_CIPHERS)
    parameters.tls_minimum_protocol_version = minimum_tls_version(mesh_mtls)
    parameters.tls_maximum_protocol_version = common_pb2.TlsParameters.TLSv1_3
    files = certificates.files
    _add_certificates(common, [names.file_certificate(files.server_cert, files.server_key)], certificates)
    _validate_clients(
        common, build_validation(prefixes=[f"spiffe://{d}/" for d in trust_domains]), files.server_root, certificates
    )
    apply_compliance(common, compliance)
    return tls_pb2.DownstreamTlsContext(
        common_tls_context=common, require_client_certificate=wrappers_pb2.BoolValue(value=True)
    )


def build_server_context(
    settings: ServerTLSSettings,
    certificates: ServerCertificates,
    alpn: Sequence[str] = HTTP_ALPN,
    quic: bool = False,
    defaults: TLSConfig | None = None,
    compliance: str = "",
) -> tls_pb2.DownstreamTlsContext:
    """Return the TLS context for a server that terminates TLS.

    `alpn` is `PEER_ALPN` for a TCP server in ISTIO_MUTUAL mode, and `HTTP3_ALPN` if `quic` is set. A QUIC server cannot
    request client certificates. `defaults` is the mesh's tlsDefaults.
    """
    common = tls_pb2.CommonTlsContext(alpn_protocols=alpn)
    mode = settings.mode
    required = mode in ("MUTUAL", "ISTIO_MUTUAL") and not quic
    if mode != "ISTIO_MUTUAL" and (settings.credential_names or settings.credential_name):
        _add_credentials(common, settings, certificates)
    else:
        _add_files(common, settings, certificates, required or mode == "OPTIONAL_MUTUAL")
    if mode in ("SIMPLE", "MUTUAL", "OPTIONAL_MUTUAL"):
        _set_parameters(common, settings, defaults)
    apply_compliance(common, compliance)
    return tls_pb2.DownstreamTlsContext(
        common_tls_context=common, require_client_certificate=wrappers_pb2.BoolValue(value=required)
    )


def _add_certificates(common: tls_pb2.CommonTlsContext, files: Iterable[str], certificates: ServerCertificates) -> None:
    for name in files:
        secret = build_file_secret(name, default=names.WORKLOAD_SECRET, user_server=certificates.servers.files)
        common.tls_certificate_sds_secret_configs.add().CopyFrom(secret)


def _validate_clients(
    common: tls_pb2.CommonTlsContext,
    validation: common_pb2.CertificateValidationContext,
    root: str,
    certificates: ServerCertificates,
) -> None:
    secret = build_file_secret(names.file_root(root), default=names.ROOT_SECRET, user_server=certificates.servers.files)
    common.combined_validation_context.CopyFrom(build_combined(validation, secret))


def _add_files(
    common: tls_pb2.CommonTlsContext, settings: ServerTLSSettings, certificates: ServerCertificates, verify: bool
) -> None:
    if settings.mode == "ISTIO_MUTUAL":
        files = certificates.files
        secret_names, root = [names.file_certificate(files.server_cert, files.server_key)], files.server_root
    else:
        certificate_names = [
            names.file_certificate(c.server_certificate, c.private_key) for c in settings.tls_certificates
        ]
        secret_names, root = (
            certificate_names or [names.file_certificate(settings.server_certificate, settings.private_key)],
            settings.ca_certificates,
        )
    _add_certificates(common, secret_names, certificates)
    if verify:
        _validate_clients(
            common,
            build_validation(settings.subject_alt_names, (), settings.ca_crl, bool(settings.insecure_skip_verify)),
            root,
            certificates,
        )


def _add_credentials(
    common: tls_pb2.CommonTlsContext, settings: ServerTLSSettings, certificates: ServerCertificates
) -> None:
    """Add the secrets for the server's credentials.

    The roots come from `ca_cert_credential_name` or, if it is not set, from the first credential's name with the suffix
    "-cacert".
    """
    credentials = settings.credential_names or (settings.credential_name,)
    user_server, provider = certificates.servers.credentials, certificates.provider
    for name in credentials:
        common.tls_certificate_sds_secret_configs.add().CopyFrom(build_credential_secret(name, user_server, provider))
    if settings.mode in ("MUTUAL", "OPTIONAL_MUTUAL"):
        validation = build_validation(settings.subject_alt_names, accept_untrusted=bool(settings.insecure_skip_verify))
        validation.verify_certificate_spki.extend(settings.verify_certificate_spki)
        validation.verify_certificate_hash.extend(settings.verify_certificate_hash)
        roots = settings.ca_cert_credential_name or credentials[0] + names.CA_SUFFIX
        common.combined_validation_context.CopyFrom(
            build_combined(validation, build_credential_secret(roots, user_server, provider))
        )
    elif settings.subject_alt_names:
        common.validation_context.CopyFrom(build_validation(settings.subject_alt_names))


def _set_parameters(common: tls_pb2.CommonTlsContext, settings: ServerTLSSettings, defaults: TLSConfig | None) -> None:
    """Set the TLS versions, ciphers and curves. The server's settings take precedence over the mesh's."""
    own_ciphers = tuple(dict.fromkeys(c for c in settings.cipher_suites if c in CIPHER_SUITES))
    ciphers = own_ciphers or supported_ciphers(defaults)
    curves = [c for c in settings.ecdh_curves if c in CURVES] or supported_curves(defaults)
    if ciphers:
        common.tls_params.cipher_suites.extend(ciphers)
    if curves:
        common.tls_params.ecdh_curves.extend(curves)
    if settings.min_protocol_version != "TLS_AUTO":
        common.tls_params.tls_minimum_protocol_version = _PROTOCOLS[settings.min_protocol_version]
    elif defaults is not None and (
        defaults.min_protocol_version != "TLS_AUTO" or (requires_tls_1_3(defaults) and not own_ciphers)
    ):
        common.tls_params.tls_minimum_protocol_version = minimum_tls_version(defaults)
    if settings.max_protocol_version != "TLS_AUTO":
        common.tls_params.tls_maximum_protocol_version = _PROTOCOLS[settings.max_protocol_version]

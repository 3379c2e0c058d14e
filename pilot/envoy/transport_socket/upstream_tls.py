"""TLS that clusters originate: mTLS to peers in the mesh, and TLS configured by DestinationRules.

https://istio.io/latest/docs/reference/config/networking/destination-rule/#ClientTLSSettings
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2

from pilot.config.mesh.mesh_config import TLSConfig
from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.envoy import names
from pilot.envoy.transport_socket.certificate_validation import build_combined, build_validation, exact_matcher
from pilot.envoy.transport_socket.sds import (
    MESH_ROOTS,
    WORKLOAD_CERTIFICATE,
    build_credential_secret,
    build_file_secret,
)
from pilot.envoy.transport_socket.tls_compliance import apply_compliance
from pilot.envoy.transport_socket.tls_defaults import supported_ciphers, supported_curves
from pilot.mesh.model.facets import SecretServersFacet

SYSTEM_ROOTS = "system"  # the operating system's trusted roots


class UpstreamTls(NamedTuple):
    """Properties of TLS to an upstream peer.

    The peer must have one of `alt_names`. `http2` is set if the cluster speaks only HTTP/2. If `metadata_exchange` is
    set, the proxy offers the ALPN with which peers exchange metadata first. This requires a filter in the proxy.
    """

    sni: str = ""
    alt_names: tuple[str, ...] = ()
    http2: bool = False
    metadata_exchange: bool = True


@lru_cache(maxsize=16)
def _mesh_template(http2: bool, metadata_exchange: bool, compliance: str) -> tls_pb2.UpstreamTlsContext:
    """Return a TLS context with the settings for mesh TLS that all clusters share.

    The ALPN `istio` lets a permissive server distinguish mesh TLS from the application's own TLS.
    """
    common = _common_context()
    common.alpn_protocols.extend(
        [*(["istio-peer-exchange"] if metadata_exchange else []), "istio", *(["h2"] if http2 else [])]
    )
    common.tls_certificate_sds_secret_configs.add().CopyFrom(WORKLOAD_CERTIFICATE)
    common.combined_validation_context.CopyFrom(build_combined(common_pb2.CertificateValidationContext(), MESH_ROOTS))
    apply_compliance(common, compliance)
    return tls_pb2.UpstreamTlsContext(common_tls_context=common)


def _common_context() -> tls_pb2.CommonTlsContext:
    parameters = common_pb2.TlsParameters(
        tls_minimum_protocol_version=common_pb2.TlsParameters.TLSv1_2,
        tls_maximum_protocol_version=common_pb2.TlsParameters.TLSv1_3,
    )
    return tls_pb2.CommonTlsContext(tls_params=parameters)


def build_mesh_context(tls: UpstreamTls, compliance: str = "") -> tls_pb2.UpstreamTlsContext:
    """Return the context for mTLS with the proxy's mesh certificate."""
    context = tls_pb2.UpstreamTlsContext()
    context.CopyFrom(_mesh_template(tls.http2, tls.metadata_exchange, compliance))
    context.sni = tls.sni
    validation = context.common_tls_context.combined_validation_context.default_validation_context
    validation.match_subject_alt_names.extend([exact_matcher(n) for n in tls.alt_names])
    return context


def build_upstream_context(
    settings: ClientTLSSettings,
    tls: UpstreamTls,
    servers: SecretServersFacet,
    defaults: TLSConfig | None = None,
    compliance: str = "",
) -> tls_pb2.UpstreamTlsContext | None:
    """Return the TLS context for mode SIMPLE or MUTUAL, or None if the mode is MUTUAL and there is no certificate.

    None disables TLS, as in Istio. `tls` has the SNI and SANs to use, and `defaults` is the mesh's tlsDefaults.
    """
    common = _common_context()
    mutual = settings.mode == "MUTUAL"
    if settings.credential_name:
        _use_credential(common, settings, tls.alt_names, mutual, servers)
    else:
        if mutual:
            certificate = names.file_certificate(settings.client_certificate, settings.private_key)
            if not certificate:
                return None
            common.tls_certificate_sds_secret_configs.add().CopyFrom(
                build_file_secret(certificate, user_server=servers.files)
            )
        _verify_by_file(common, settings, tls.alt_names, servers)
    if defaults is not None:
        common.tls_params.ecdh_curves.extend(supported_curves(defaults))
        common.tls_params.cipher_suites.extend(supported_ciphers(defaults))
        if defaults.cipher_suites and not supported_ciphers(defaults):
            common.tls_params.tls_minimum_protocol_version = common_pb2.TlsParameters.TLSv1_3
    if tls.http2:
        common.alpn_protocols.append("h2")
    apply_compliance(common, compliance)
    return tls_pb2.UpstreamTlsContext(common_tls_context=common, sni=tls.sni)


def _use_credential(
    common: tls_pb2.CommonTlsContext,
    settings: ClientTLSSettings,
    alt_names: Iterable[str],
    mutual: bool,
    servers: SecretServersFacet,
) -> None:
    name = settings.credential_name
    if mutual:
        common.tls_certificate_sds_secret_configs.add().CopyFrom(build_credential_secret(name, servers.credentials))
    if not settings.insecure_skip_verify:
        roots = build_credential_secret(name + names.CA_SUFFIX, servers.credentials)
        common.combined_validation_context.CopyFrom(build_combined(build_validation(alt_names), roots))


def _verify_by_file(
    common: tls_pb2.CommonTlsContext, settings: ClientTLSSettings, alt_names: Iterable[str], servers: SecretServersFacet
) -> None:
    if settings.insecure_skip_verify:
        common.validation_context.SetInParent()
        return
    roots = build_file_secret(names.file_root(settings.ca_certificates or SYSTEM_ROOTS), user_server=servers.files)
    common.combined_validation_context.CopyFrom(build_combined(build_validation(alt_names, crl=settings.ca_crl), roots))

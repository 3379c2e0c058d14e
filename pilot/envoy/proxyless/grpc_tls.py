"""Mutual TLS between gRPC clients and servers.

Certificates come from the provider instance `default` in the gRPC bootstrap, which reads files that the agent writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.transport_socket.certificate_validation import exact_matcher
from pilot.envoy.well_known_types import pack

SOCKET = "envoy.transport_sockets.tls"
INSTANCE, CERTIFICATE, ROOTS = "default", "default", "ROOTCA"
_Common = tls_pb2.CommonTlsContext


def build_client_socket(accounts: Iterable[str]) -> base_pb2.TransportSocket:
    """Return the transport socket of a client.

    The server must have one of the identities in `accounts`. If there are none, any identity is accepted.
    """
    return _socket(tls_pb2.UpstreamTlsContext(common_tls_context=_build_common(accounts)))


def build_server_socket() -> base_pb2.TransportSocket:
    """Return the transport socket of a server, which requires a client certificate from the mesh."""
    return _socket(
        tls_pb2.DownstreamTlsContext(
            common_tls_context=_build_common(()), require_client_certificate=wrappers_pb2.BoolValue(value=True)
        )
    )


def _build_common(accounts: Iterable[str]) -> tls_pb2.CommonTlsContext:
    """Return the TLS context. It also contains the older fields that clients released before 2024 read."""
    validation = common_pb2.CertificateValidationContext(
        match_subject_alt_names=[exact_matcher(account) for account in accounts],
        ca_certificate_provider_instance=common_pb2.CertificateProviderPluginInstance(
            instance_name=INSTANCE, certificate_name=ROOTS
        ),
    )
    return _Common(
        tls_certificate_provider_instance=common_pb2.CertificateProviderPluginInstance(
            instance_name=INSTANCE, certificate_name=CERTIFICATE
        ),
        tls_certificate_certificate_provider_instance=_Common.CertificateProviderInstance(
            instance_name=INSTANCE, certificate_name=CERTIFICATE
        ),
        combined_validation_context=_Common.CombinedCertificateValidationContext(
            default_validation_context=validation,
            validation_context_certificate_provider_instance=_Common.CertificateProviderInstance(
                instance_name=INSTANCE, certificate_name=ROOTS
            ),
        ),
    )


def _socket(context: Any) -> base_pb2.TransportSocket:
    return base_pb2.TransportSocket(name=SOCKET, typed_config=pack(context))

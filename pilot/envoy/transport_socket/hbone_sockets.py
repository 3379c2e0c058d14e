"""Transport sockets of HBONE tunnels, and of clusters that connect to the internal listeners that originate tunnels."""

from __future__ import annotations

from collections.abc import Iterable

from envoy.config.core.v3 import base_pb2
from envoy.extensions.transport_sockets.internal_upstream.v3 import internal_upstream_pb2
from envoy.extensions.transport_sockets.tls.v3 import common_pb2, tls_pb2
from envoy.type.matcher.v3 import string_pb2
from envoy.type.metadata.v3 import metadata_pb2
from google.protobuf import wrappers_pb2

from pilot.envoy.transport_socket.certificate_validation import build_combined
from pilot.envoy.transport_socket.sds import MESH_ROOTS, WORKLOAD_CERTIFICATE
from pilot.envoy.transport_socket.tls_compliance import apply_compliance
from pilot.envoy.transport_socket.transport_sockets import PLAINTEXT
from pilot.envoy.well_known_types import pack

INTERNAL_UPSTREAM = "envoy.transport_sockets.internal_upstream"
INTERNAL_UPSTREAM_NAME = "internal_upstream"
TLS_INSIDE = "internal_upstream_with_tls"
_TLS = "tls"
_Internal = internal_upstream_pb2.InternalUpstreamTransport
_Kind = metadata_pb2.MetadataKind
_HOST, _CLUSTER = _Kind(host=_Kind.Host()), _Kind(cluster=_Kind.Cluster())
ORIGINAL_DST = "envoy.filters.listener.original_dst"  # endpoint metadata: destination of the tunnel
ISTIO = "istio"
# Metadata of clusters and endpoints that is passed to internal listeners.
ENDPOINT_METADATA = ((_HOST, ORIGINAL_DST), (_HOST, ISTIO))
CLUSTER_AND_ENDPOINT_METADATA = ((_HOST, ORIGINAL_DST), (_CLUSTER, ISTIO), (_HOST, ISTIO))
PEER_METADATA_KEY = "istio.peer_metadata"  # metadata that controls the discovery of peers
PEER_METADATA = ((_CLUSTER, PEER_METADATA_KEY), (_HOST, PEER_METADATA_KEY))


def build_internal_upstream(
    inner: base_pb2.TransportSocket = PLAINTEXT,
    metadata: Iterable[tuple[metadata_pb2.MetadataKind, str]] = (),
    name: str = INTERNAL_UPSTREAM_NAME,
) -> base_pb2.TransportSocket:
    """Return the transport socket of a cluster whose endpoints are internal listeners.

    `metadata` is passed to these listeners.
    """
    values = [_Internal.MetadataValueSource(kind=kind, name=key) for kind, key in metadata]
    return base_pb2.TransportSocket(
        name=name, typed_config=pack(_Internal(passthrough_metadata=values, transport_socket=inner))
    )


def tunnel_metadata(baggage: bool) -> tuple[tuple[metadata_pb2.MetadataKind, str], ...]:
    """Return the metadata of clusters and endpoints that is passed to listeners that open tunnels."""
    return CLUSTER_AND_ENDPOINT_METADATA + (PEER_METADATA if baggage else ())


def build_tunnel_context(
    trust_domains: Iterable[str], compliance: str, prefixes: Iterable[str] = ()
) -> tls_pb2.CommonTlsContext:
    """Return the mTLS context for either end of a tunnel.

    Peers must belong to one of the trust domains or have an identity with one of the prefixes.
    """
    v3 = common_pb2.TlsParameters.TLSv1_3
    validation = common_pb2.CertificateValidationContext()
    for prefix in (*(f"spiffe://{domain}/" for domain in trust_domains), *prefixes):
        matcher = string_pb2.StringMatcher(prefix=prefix)
        validation.match_typed_subject_alt_names.add(san_type=common_pb2.SubjectAltNameMatcher.URI, matcher=matcher)
    context = tls_pb2.CommonTlsContext(
        alpn_protocols=["h2"],
        tls_params=common_pb2.TlsParameters(tls_minimum_protocol_version=v3, tls_maximum_protocol_version=v3),
    )
    context.tls_certificate_sds_secret_configs.add().CopyFrom(WORKLOAD_CERTIFICATE)
    context.combined_validation_context.CopyFrom(build_combined(validation, MESH_ROOTS))
    apply_compliance(context, compliance)
    return context


def build_tunnel_client(context: tls_pb2.CommonTlsContext) -> base_pb2.TransportSocket:
    """Return the transport socket of a cluster that originates tunnels."""
    return base_pb2.TransportSocket(
        name=_TLS, typed_config=pack(tls_pb2.UpstreamTlsContext(common_tls_context=context))
    )


def build_tunnel_server(context: tls_pb2.CommonTlsContext) -> base_pb2.TransportSocket:
    """Return the transport socket of a listener that terminates tunnels."""
    config = tls_pb2.DownstreamTlsContext(
        common_tls_context=context, require_client_certificate=wrappers_pb2.BoolValue(value=True)
    )
    return base_pb2.TransportSocket(name=_TLS, typed_config=pack(config))

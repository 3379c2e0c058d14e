"""Transport sockets of a cluster, for TLS and the PROXY protocol.

A DestinationRule configures TLS. Without one, clusters use automatic mTLS.
https://istio.io/latest/docs/ops/configuration/traffic-management/tls-configuration/#sidecars
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.extensions.clusters.dynamic_forward_proxy.v3 import cluster_pb2 as dynamic_pb2
from envoy.extensions.transport_sockets.tls.v3 import tls_pb2
from google.protobuf import struct_pb2

from pilot.config.networking.destination_rule import ClientTLSSettings, ProxyProtocol
from pilot.envoy.cluster.baggage import disable_discovery, sends_tunnels
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.transport_socket.hbone_sockets import (
    INTERNAL_UPSTREAM,
    build_internal_upstream,
    tunnel_metadata,
)
from pilot.envoy.transport_socket.transport_sockets import (
    PLAINTEXT,
    RAW_BUFFER,
    build_proxy_protocol,
    build_upstream_tls,
)
from pilot.envoy.transport_socket.upstream_tls import UpstreamTls, build_mesh_context, build_upstream_context
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import TlsFilesFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.security.mtls import Mode

_Match = cluster_pb2.Cluster.TransportSocketMatch
_CONFIG_MAP = "configmap://"
_MESH, _USER = "tlsMode-istio", "user"


class TlsPeer(NamedTuple):
    """The upstream peer of a cluster.

    `accounts` are the identities of its workloads, and `mtls` is the mode that they are known to accept.
    `has_workload_selector` is set if the DestinationRule has a workload selector.
    """

    sni: str = ""
    accounts: tuple[str, ...] = ()
    mtls: Mode = "UNKNOWN"
    is_external: bool = False
    is_service_entry: bool = False
    has_workload_selector: bool = False


class EffectiveTls(NamedTuple):
    """The TLS settings that take effect.

    `automatic` is set if no rule configures TLS. Endpoints without mesh TLS then use plaintext.
    """

    settings: ClientTLSSettings | None = None
    automatic: bool = False


def effective_tls(
    settings: ClientTLSSettings | None, peer: TlsPeer, files: TlsFilesFacet, defaults: ClusterDefaults
) -> EffectiveTls:
    """Return the TLS settings of the DestinationRule, completed for the peer.

    If there are no settings, automatic mTLS is used for peers in the mesh. A proxy with its own certificate files uses
    them for all mutual TLS, except to services outside the mesh.
    """
    if settings is not None:
        return EffectiveTls(_complete(settings, peer, files, defaults))
    if peer.is_external or not defaults.auto_mtls or peer.mtls in ("UNKNOWN", "DISABLE"):
        return EffectiveTls()
    if files.client_cert:
        return EffectiveTls(_from_files(files, peer.accounts, peer.sni), automatic=True)
    return EffectiveTls(
        ClientTLSSettings(mode="ISTIO_MUTUAL", subject_alt_names=peer.accounts, sni=peer.sni), automatic=True
    )


def _complete(
    settings: ClientTLSSettings, peer: TlsPeer, files: TlsFilesFacet, defaults: ClusterDefaults
) -> ClientTLSSettings:
    if settings.mode in ("DISABLE", "SIMPLE"):
        return settings
    if files.client_cert:
        if peer.is_external and defaults.external_tls_by_rule:
            return settings
        return _from_files(files, settings.subject_alt_names, settings.sni, settings.insecure_skip_verify)
    if settings.mode == "MUTUAL":
        return settings
    return ClientTLSSettings(
        mode="ISTIO_MUTUAL",
        subject_alt_names=settings.subject_alt_names or peer.accounts,
        sni=settings.sni or peer.sni,
        insecure_skip_verify=settings.insecure_skip_verify,
    )


def _from_files(
    files: TlsFilesFacet, alt_names: tuple[str, ...], sni: str, insecure: bool | None = None
) -> ClientTLSSettings:
    return ClientTLSSettings(
        mode="MUTUAL",
        client_certificate=files.client_cert,
        private_key=files.client_key,
        ca_certificates=files.client_root,
        subject_alt_names=alt_names,
        sni=sni,
        insecure_skip_verify=insecure,
    )


def apply_upstream_tls(
    draft: ClusterDraft,
    rule_settings: ClientTLSSettings | None,
    peer: TlsPeer,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> None:
    """Set the transport sockets of a cluster.

    With automatic mTLS, the `tlsMode` of an endpoint selects its socket. If the client sends HBONE, endpoints may also
    select a tunnel.
    """
    settings, automatic = effective_tls(rule_settings, peer, traits.tls_files, defaults)
    context = build_context(draft, settings, peer, traits, defaults) if settings is not None else None
    socket = build_upstream_tls(context) if context is not None else None
    automatic = automatic and settings is not None and settings.mode == "ISTIO_MUTUAL"
    if draft.passes_through and settings is not None:
        matches: list[cluster_pb2.Cluster.TransportSocketMatch] = []
    elif sends_tunnels(traits, defaults):
        matches = _tunnel_matches(settings, socket, automatic, defaults.baggage)
        if matches[-1].name == _USER:
            disable_discovery(draft.cluster, traits, defaults)
    elif automatic and socket is not None:
        matches = [_with_socket(_mesh_match(), socket), _plaintext_match()]
    else:
        matches = []
    if matches:
        draft.cluster.transport_socket_matches.extend(matches)
    elif socket is not None:
        draft.cluster.transport_socket.CopyFrom(socket)


def _tunnel_matches(
    settings: ClientTLSSettings | None, socket: base_pb2.TransportSocket | None, automatic: bool, baggage: bool
) -> list[cluster_pb2.Cluster.TransportSocketMatch]:
    """Return the matches that select the transport socket for an endpoint. The match for the tunnel comes first.

    TLS that the user configures runs inside the tunnel. Mesh TLS is replaced by the tunnel.
    """
    if settings is None or socket is None:
        return [_tunnel_match(RAW_BUFFER, baggage), _plaintext_match()]
    if automatic:
        return [_tunnel_match(RAW_BUFFER, baggage), _with_socket(_mesh_match(), socket), _plaintext_match()]
    if settings.mode == "ISTIO_MUTUAL":
        return [_tunnel_match(RAW_BUFFER, baggage), _Match(name=_MESH, transport_socket=socket)]
    return [_tunnel_match(socket, baggage), _Match(name=_USER, transport_socket=socket)]


def _tunnel_match(inner: base_pb2.TransportSocket, baggage: bool) -> cluster_pb2.Cluster.TransportSocketMatch:
    match = struct_pb2.Struct(fields={"tunnel": struct_pb2.Value(string_value="http")})
    return _Match(
        name="hbone",
        match=match,
        transport_socket=build_internal_upstream(inner, tunnel_metadata(baggage), INTERNAL_UPSTREAM),
    )


def _with_socket(
    match: cluster_pb2.Cluster.TransportSocketMatch, socket: base_pb2.TransportSocket
) -> cluster_pb2.Cluster.TransportSocketMatch:
    copy = _Match()
    copy.CopyFrom(match)
    copy.transport_socket.CopyFrom(socket)
    return copy


@lru_cache(maxsize=1)
def _mesh_match() -> cluster_pb2.Cluster.TransportSocketMatch:
    return _Match(name=_MESH, match=struct_pb2.Struct(fields={"tlsMode": struct_pb2.Value(string_value="istio")}))


@lru_cache(maxsize=1)
def _plaintext_match() -> cluster_pb2.Cluster.TransportSocketMatch:
    match = _Match(name="tlsMode-disabled", transport_socket=RAW_BUFFER)
    match.match.SetInParent()
    return match


def build_context(
    draft: ClusterDraft, settings: ClientTLSSettings, peer: TlsPeer, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> tls_pb2.UpstreamTlsContext | None:
    """Return the TLS context of a cluster, or None if the cluster does not use TLS."""
    if settings.mode == "DISABLE" or _lacks_credential(settings, peer, traits):
        return None
    exchanges = defaults.metadata_exchange_alpn and traits.metadata_exchange
    if settings.mode == "ISTIO_MUTUAL":
        sni = settings.sni or ("" if draft.dynamic else draft.cluster.name)
        if draft.dynamic:
            apply_auto_sni(draft, settings)
        return build_mesh_context(
            UpstreamTls(sni, settings.subject_alt_names, draft.is_http2, exchanges), defaults.compliance
        )
    apply_auto_sni(draft, settings)
    alt_names = settings.subject_alt_names or (peer.accounts if peer.is_service_entry else ())
    tls = UpstreamTls(settings.sni, alt_names, draft.is_http2)
    return build_upstream_context(settings, tls, traits.secret_servers, defaults.tls, defaults.compliance)


def _lacks_credential(settings: ClientTLSSettings, peer: TlsPeer, traits: ClusterTraitsKey) -> bool:
    """Return whether the proxy cannot use the credential that the settings reference.

    A sidecar only uses credentials from rules with a workload selector. Rules without one also apply to workloads that
    cannot read the credential and would not start.
    """
    name = settings.credential_name
    private = bool(name) and not name.startswith(_CONFIG_MAP)
    return (
        private
        and traits.type is NodeType.SIDECAR
        and not peer.has_workload_selector
        and settings.mode in ("SIMPLE", "MUTUAL")
    )


def apply_auto_sni(draft: ClusterDraft, settings: ClientTLSSettings) -> None:
    """Take the SNI from the request's host if none is configured.

    The certificate is verified against that host too, unless SANs are configured.
    """
    auto_sni = not settings.sni
    verify = (draft.dynamic or (auto_sni and not settings.subject_alt_names)) and not settings.insecure_skip_verify
    if draft.dynamic and not (auto_sni and verify):
        allow_insecure_cluster(draft)
    if auto_sni or verify:
        options = draft.options.upstream_http_protocol_options
        options.auto_sni, options.auto_san_validation = auto_sni, verify


def allow_insecure_cluster(draft: ClusterDraft) -> None:
    """Allow a dynamic forward proxy that does not verify hosts. Envoy rejects it otherwise."""
    config = dynamic_pb2.ClusterConfig.FromString(draft.cluster.cluster_type.typed_config.value)
    draft.insecure = config.allow_insecure_cluster_options = True
    draft.cluster.cluster_type.typed_config.CopyFrom(pack(config))


def apply_proxy_protocol(draft: ClusterDraft, settings: ProxyProtocol) -> None:
    """Wrap all transport sockets of a cluster, to add the PROXY protocol.

    https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-ProxyProtocol
    """
    cluster = draft.cluster
    if cluster.HasField("transport_socket") or not cluster.transport_socket_matches:
        inner = cluster.transport_socket if cluster.HasField("transport_socket") else PLAINTEXT
        cluster.transport_socket.CopyFrom(build_proxy_protocol(inner, settings))
    for match in cluster.transport_socket_matches:
        match.transport_socket.CopyFrom(build_proxy_protocol(match.transport_socket, settings))

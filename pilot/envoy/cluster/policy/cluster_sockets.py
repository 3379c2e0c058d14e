"""Decides the TLS that a cluster originates: what a DestinationRule asks for, else mutual TLS to those peers that take it.

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
from pilot.envoy.cluster.cluster_defaults import ClusterDefaults
from pilot.envoy.cluster.cluster_draft import ClusterDraft
from pilot.envoy.cluster.cluster_traits import ClusterTraitsKey
from pilot.envoy.transport_socket.hbone_sockets import (
    CLUSTER_AND_ENDPOINT_METADATA,
    INTERNAL_UPSTREAM,
    build_internal_upstream,
)
from pilot.envoy.transport_socket.transport_sockets import PLAIN, RAW_BUFFER, build_proxy_protocol, build_upstream_tls
from pilot.envoy.transport_socket.upstream_tls import UpstreamTls, build_mesh_context, build_upstream_context
from pilot.envoy.well_known_types import pack
from pilot.mesh.model.facets import TlsFilesFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.security.mtls import Mode

_Match = cluster_pb2.Cluster.TransportSocketMatch


_CONFIG_MAP = "configmap://"


_MESH = "tlsMode-istio"


class TlsPeer(NamedTuple):
    """Says whom a cluster talks to. `accounts`: the identities of its workloads; `mtls`: what they accept, as far as it is known.

    `entry`: it is of a ServiceEntry. `for_workloads`: the rule has a workload selector.
    """

    sni: str = ""
    accounts: tuple[str, ...] = ()
    mtls: Mode = "UNKNOWN"
    external: bool = False
    entry: bool = False
    for_workloads: bool = False


class EffectiveTls(NamedTuple):
    """Holds the TLS to use. `automatic`: nobody asked for it, so that endpoints without mesh TLS must do without."""

    settings: ClientTLSSettings | None = None
    automatic: bool = False


def effective_tls(
    said: ClientTLSSettings | None, peer: TlsPeer, files: TlsFilesFacet, defaults: ClusterDefaults
) -> EffectiveTls:
    """Returns what the rule says, completed with what is known of the peer; without a rule mesh TLS, where the peer is of the mesh.

    A proxy with certificate files of its own uses them for all mutual TLS, but to services outside of the mesh.
    """
    if said is not None:
        return EffectiveTls(_completed(said, peer, files, defaults))
    if peer.external or not defaults.auto_mtls or peer.mtls in ("UNKNOWN", "DISABLE"):
        return EffectiveTls()
    if files.client_cert:
        return EffectiveTls(_from_files(files, peer.accounts, peer.sni), automatic=True)
    return EffectiveTls(
        ClientTLSSettings(mode="ISTIO_MUTUAL", subject_alt_names=peer.accounts, sni=peer.sni), automatic=True
    )


def _completed(
    said: ClientTLSSettings, peer: TlsPeer, files: TlsFilesFacet, defaults: ClusterDefaults
) -> ClientTLSSettings:
    if said.mode in ("DISABLE", "SIMPLE"):
        return said
    if files.client_cert:
        if peer.external and defaults.external_tls_by_rule:
            return said
        return _from_files(files, said.subject_alt_names, said.sni, said.insecure_skip_verify)
    if said.mode == "MUTUAL":
        return said
    return ClientTLSSettings(
        mode="ISTIO_MUTUAL",
        subject_alt_names=said.subject_alt_names or peer.accounts,
        sni=said.sni or peer.sni,
        insecure_skip_verify=said.insecure_skip_verify,
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
    said: ClientTLSSettings | None,
    peer: TlsPeer,
    traits: ClusterTraitsKey,
    defaults: ClusterDefaults,
) -> None:
    """Sets the transport socket; automatic TLS becomes a choice by the endpoint's tlsMode, and so does a tunnel where the client sends HBONE."""
    settings, automatic = effective_tls(said, peer, traits.tls_files, defaults)
    context = build_context(draft, settings, peer, traits, defaults) if settings is not None else None
    socket = build_upstream_tls(context) if context is not None else None
    automatic = automatic and settings is not None and settings.mode == "ISTIO_MUTUAL"
    if draft.passes_through and settings is not None:
        matches: list[cluster_pb2.Cluster.TransportSocketMatch] = []
    elif traits.tunnels and (defaults.send_hbone or traits.type is NodeType.WAYPOINT):
        matches = _tunnel_matches(settings, socket, automatic)
    elif automatic and socket is not None:
        matches = [_with_socket(_mesh_match(), socket), _plain_match()]
    else:
        matches = []
    if matches:
        draft.cluster.transport_socket_matches.extend(matches)
    elif socket is not None:
        draft.cluster.transport_socket.CopyFrom(socket)


def _tunnel_matches(
    settings: ClientTLSSettings | None, socket: base_pb2.TransportSocket | None, automatic: bool
) -> list[cluster_pb2.Cluster.TransportSocketMatch]:
    """Returns the choice by the endpoint: a tunnel, else what there would be without one. TLS of the user's own goes into the tunnel; that of the
    mesh does not, for the tunnel takes its place."""
    if settings is None or socket is None:
        return [_tunnel_match(RAW_BUFFER), _plain_match()]
    if automatic:
        return [_tunnel_match(RAW_BUFFER), _with_socket(_mesh_match(), socket), _plain_match()]
    if settings.mode == "ISTIO_MUTUAL":
        return [_tunnel_match(RAW_BUFFER), _Match(name=_MESH, transport_socket=socket)]
    return [_tunnel_match(socket), _Match(name="user", transport_socket=socket)]


def _tunnel_match(inner: base_pb2.TransportSocket) -> cluster_pb2.Cluster.TransportSocketMatch:
    match = struct_pb2.Struct(fields={"tunnel": struct_pb2.Value(string_value="http")})
    return _Match(
        name="hbone",
        match=match,
        transport_socket=build_internal_upstream(inner, CLUSTER_AND_ENDPOINT_METADATA, INTERNAL_UPSTREAM),
    )


def _with_socket(
    match: cluster_pb2.Cluster.TransportSocketMatch, socket: base_pb2.TransportSocket
) -> cluster_pb2.Cluster.TransportSocketMatch:
    found = _Match()
    found.CopyFrom(match)
    found.transport_socket.CopyFrom(socket)
    return found


@lru_cache(maxsize=1)
def _mesh_match() -> cluster_pb2.Cluster.TransportSocketMatch:
    return _Match(name=_MESH, match=struct_pb2.Struct(fields={"tlsMode": struct_pb2.Value(string_value="istio")}))


@lru_cache(maxsize=1)
def _plain_match() -> cluster_pb2.Cluster.TransportSocketMatch:
    match = _Match(name="tlsMode-disabled", transport_socket=RAW_BUFFER)
    match.match.SetInParent()
    return match


def build_context(
    draft: ClusterDraft, settings: ClientTLSSettings, peer: TlsPeer, traits: ClusterTraitsKey, defaults: ClusterDefaults
) -> tls_pb2.UpstreamTlsContext | None:
    """Returns the TLS context of a cluster; None where it uses no TLS."""
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
    alt_names = settings.subject_alt_names or (peer.accounts if peer.entry else ())
    tls = UpstreamTls(settings.sni, alt_names, draft.is_http2)
    return build_upstream_context(settings, tls, traits.secret_servers, defaults.tls, defaults.compliance)


def _lacks_credential(settings: ClientTLSSettings, peer: TlsPeer, traits: ClusterTraitsKey) -> bool:
    """Returns whether a credential cannot be used: a sidecar takes one only by a rule for some workloads, for many others could not read
    it and would not start."""
    name = settings.credential_name
    private = bool(name) and not name.startswith(_CONFIG_MAP)
    return (
        private and traits.type is NodeType.SIDECAR and not peer.for_workloads and settings.mode in ("SIMPLE", "MUTUAL")
    )


def apply_auto_sni(draft: ClusterDraft, settings: ClientTLSSettings) -> None:
    """Takes the SNI from the request's host where none is said, and verifies the certificate for it unless names are said."""
    auto_sni = not settings.sni
    verify = (draft.dynamic or (auto_sni and not settings.subject_alt_names)) and not settings.insecure_skip_verify
    if draft.dynamic and not (auto_sni and verify):
        allow_insecure_cluster(draft)
    if auto_sni or verify:
        options = draft.options.upstream_http_protocol_options
        options.auto_sni, options.auto_san_validation = auto_sni, verify


def allow_insecure_cluster(draft: ClusterDraft) -> None:
    """Tells Envoy that hosts are not verified by name on purpose: without that it refuses a dynamic forward proxy that does not do so."""
    config = dynamic_pb2.ClusterConfig.FromString(draft.cluster.cluster_type.typed_config.value)
    config.allow_insecure_cluster_options = True
    draft.cluster.cluster_type.typed_config.CopyFrom(pack(config))


def apply_proxy_protocol(draft: ClusterDraft, said: ProxyProtocol) -> None:
    """Wraps every transport socket of a cluster."""
    cluster = draft.cluster
    if cluster.HasField("transport_socket") or not cluster.transport_socket_matches:
        inner = cluster.transport_socket if cluster.HasField("transport_socket") else PLAIN
        cluster.transport_socket.CopyFrom(build_proxy_protocol(inner, said))
    for match in cluster.transport_socket_matches:
        match.transport_socket.CopyFrom(build_proxy_protocol(match.transport_socket, said))


# DOC """Puts HAProxy's PROXY protocol in front of whatever a cluster sends.
#
# https://istio.io/latest/docs/reference/config/networking/destination-rule/#TrafficPolicy-ProxyProtocol
# """

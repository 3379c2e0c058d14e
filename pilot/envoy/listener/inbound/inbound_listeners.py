"""Derives the inbound listeners of sidecars: the one that captures everything, and those that a Sidecar has on ports of the pod.

What clients must come with, and which ports the proxy knows, decide the chains. Chains for ports that nothing names are shared by
all proxies of a namespace, those of a port by the pods of its service; a workload's own are only the tags of its spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from envoy.config.core.v3 import base_pb2

from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.filter_chain import build_black_hole_chain
from pilot.envoy.listener.inbound.inbound_chain_keys import passthrough_specs, port_specs
from pilot.envoy.listener.inbound.inbound_chains import InboundChain, InboundChainsKey, Materials, build_chains
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_filters import ORIGINAL_DST, ORIGINAL_SRC, Inspection, build_inspectors
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.listener.listener_options import ListenerOptions, listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import ManagerKey, http_template, tracing_part
from pilot.envoy.listener.outbound.outbound_chains import plaintext_alpns
from pilot.envoy.resource import Resource
from pilot.envoy.route.inbound_routes import build_inbound_routes
from pilot.envoy.transport_socket.downstream_tls import (
    HTTP_ALPN,
    PEER_ALPN,
    ServerCertificates,
    build_inbound_context,
    build_server_context,
)
from pilot.envoy.transport_socket.transport_sockets import build_downstream_tls
from pilot.mesh.model.facets import InboundFacet, ListeningFacet, SecretServersFacet, TlsFilesFacet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config
from pilot.mesh.tables.trust import trust_domains

BLACK_HOLE_CHAIN = "virtualInbound-blackhole"


class ServerIdentityKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Says what a proxy proves itself with to its clients."""

    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()


# -- chains ------------------------------------------------------------------------------------------------------------------


@derived
def inbound_chains(
    db: Mesh, spec: InboundChainsKey, guard: ServerIdentityKey, listening: ListeningFacet
) -> tuple[InboundChain, ...]:
    """Returns the chains of one port, shared by all workloads that serve it alike."""
    routes = build_inbound_routes(
        spec.cluster, spec.host, spec.port.number, spec.protocol, mesh_config(db).default_inbound_http_retry_policy
    )
    kind = ManagerKey(
        grpc_web=spec.protocol is Protocol.GRPC_WEB, http2=spec.protocol.is_http2, in_tunnel=not spec.exchanges
    )
    own = server_socket(db, spec.tls, guard) if spec.tls is not None and spec.mode == "DISABLE" else None
    materials = Materials(
        manager=http_template(db, kind, listening, spec.number),
        http_tls=own or mesh_socket(db, guard, False),
        tcp_tls=own or mesh_socket(db, guard, True),
        options=listener_options(db, listening),
    )
    return build_chains(spec, routes, materials, plaintext_alpns(db.settings.listeners.http10))


@derived
def mesh_socket(db: Mesh, guard: ServerIdentityKey, peers: bool) -> base_pb2.TransportSocket:
    """Returns mutual TLS of the mesh. `peers`: it carries TCP, over which the proxies may exchange metadata first."""
    settings = db.settings
    exchange = peers and settings.telemetry.metadata_exchange and not settings.telemetry.disable_metadata_exchange_alpn
    certificates = ServerCertificates(guard.tls_files, guard.secret_servers)
    alpn = PEER_ALPN if exchange else HTTP_ALPN
    return build_downstream_tls(
        build_inbound_context(
            certificates, alpn, trust_domains(db), mesh_config(db).mesh_mTLS, settings.tls.compliance_policy
        )
    )


@derived
def server_socket(db: Mesh, tls: ServerTLSSettings, guard: ServerIdentityKey) -> base_pb2.TransportSocket:
    """Returns TLS that a Sidecar ends on a port of its own."""
    certificates = ServerCertificates(guard.tls_files, guard.secret_servers)
    context = build_server_context(
        tls, certificates, defaults=mesh_config(db).tls_defaults, compliance=db.settings.tls.compliance_policy
    )
    return build_downstream_tls(context)


@derived
def black_hole_chain(db: Mesh, listening: ListeningFacet) -> InboundChain:
    """Returns the chain for connections to the capturing port itself."""
    port = listener_defaults(db).inbound_port
    parts = build_black_hole_chain(BLACK_HOLE_CHAIN, port, listener_options(db, listening).network, inbound=True)
    return InboundChain(parts, port, Inspection())


# -- listeners ---------------------------------------------------------------------------------------------------------------


@derived
def inbound_listeners(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Returns the inbound listeners of a workload, by name."""
    guard, listening = ServerIdentityKey(inbound.tls_files, inbound.secret_servers), inbound.listening
    options = listener_options(db, listening)
    captured: list[InboundChain] = []
    found: list[ListenerParts] = []
    for spec in port_specs(db, inbound):
        chains = inbound_chains(db, spec, guard, listening)
        if spec.to_port:
            found.append(build_inbound_listener(spec.name, spec.bind, spec.number, chains, options, ""))
        else:
            captured += chains
    if listening.interception != "NONE":
        unnamed = [c for spec in passthrough_specs(db, inbound) for c in inbound_chains(db, spec, guard, listening)]
        everything = [black_hole_chain(db, listening), *unnamed, *captured]
        binds, port = wildcards(listening.ipv4, listening.ipv6), listener_defaults(db).inbound_port
        found.append(
            build_inbound_listener(names.VIRTUAL_INBOUND, binds, port, everything, options, listening.interception)
        )
    tracing = tracing_part(db, listening, inbound.tags, inbound.scope)
    return {parts.name: assemble(parts, tracing) for parts in found}


def build_inbound_listener(
    name: str,
    binds: tuple[str, ...],
    port: int,
    chains: Sequence[InboundChain],
    options: ListenerOptions,
    captures: str,
) -> ListenerParts:
    """Returns a listener. `captures`: how traffic is captured for it (REDIRECT, TPROXY), "" for one on a port of the pod."""
    tproxy = captures == "TPROXY"
    frame = Frame(
        name=name,
        binds=binds if options.dual_stack else binds[:1],
        port=port,
        inbound=True,
        accepts=options.accepts,
        exact_balance=options.exact_balance,
        filters=(
            *((ORIGINAL_DST,) if captures else ()),
            *((ORIGINAL_SRC,) if tproxy else ()),
            *build_inspectors(inspections(chains)),
        ),
        inspection_timeout=options.detection_timeout,
        access_logs=build_listener_access_logs(options.network.access_logs),
        transparent=tproxy,
    )
    return ListenerParts(name, build_frame(frame).SerializeToString(deterministic=True), tuple(c.parts for c in chains))


def inspections(chains: Sequence[InboundChain]) -> dict[int, Inspection]:
    """Returns what the chains of each port need to know together."""
    found: dict[int, Inspection] = {}
    for chain in chains:
        before = found.get(chain.port, Inspection())
        found[chain.port] = Inspection(before.tls or chain.inspection.tls, before.http or chain.inspection.http)
    return found

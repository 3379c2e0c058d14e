"""The inbound listeners of sidecars: the capture listener, and listeners that a Sidecar defines on ports of the pod.

The accepted mTLS modes and the declared ports determine the chains. All proxies of a namespace share the chains for
undeclared ports. The pods of a service share the chains for its ports. Only the tracing tags are specific to a
workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec
from envoy.config.core.v3 import base_pb2

from pilot.config.networking.gateway import ServerTLSSettings
from pilot.config.protocol import Protocol
from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.filter_chain import build_black_hole_chain, plaintext_alpns
from pilot.envoy.listener.inbound.inbound_chain_keys import passthrough_keys, port_keys
from pilot.envoy.listener.inbound.inbound_chains import ChainInputs, InboundChain, InboundChainsKey, build_chains
from pilot.envoy.listener.listener_address import wildcards
from pilot.envoy.listener.listener_filters import ORIGINAL_DST, ORIGINAL_SRC, Inspection, build_inspectors
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_options import ListenerOptions, listener_defaults, listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import ManagerKey, manager_template_at, tracing_fields
from pilot.envoy.listener.policy_copies import limit_copies
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
    """The certificates with which a proxy authenticates itself to clients."""

    tls_files: TlsFilesFacet = TlsFilesFacet()
    secret_servers: SecretServersFacet = SecretServersFacet()


# -- chains ------------------------------------------------------------------------------------------------------------


@derived
def inbound_chains(
    db: Mesh, key: InboundChainsKey, identity: ServerIdentityKey, listening: ListeningFacet
) -> tuple[InboundChain, ...]:
    """Return the chains for one port. Workloads that serve the port with equal settings share them."""
    routes = build_inbound_routes(
        key.cluster, key.host, key.port.number, key.protocol, mesh_config(db).default_inbound_http_retry_policy
    )
    kind = ManagerKey(
        grpc_web=key.protocol is Protocol.GRPC_WEB, http2=key.protocol.is_http2, in_tunnel=not key.exchanges_metadata
    )
    server_tls = server_tls_socket(db, key.tls, identity) if key.tls is not None and key.mode == "DISABLE" else None
    inputs = ChainInputs(
        manager=manager_template_at(db, kind, listening, key.number),
        http_tls=server_tls or mesh_tls_socket(db, identity, False),
        tcp_tls=server_tls or mesh_tls_socket(db, identity, True),
        options=listener_options(db, listening),
    )
    return build_chains(key, routes, inputs, plaintext_alpns(db.settings.listeners.http10))


@derived
def mesh_tls_socket(db: Mesh, identity: ServerIdentityKey, peers: bool) -> base_pb2.TransportSocket:
    """Return the transport socket that terminates mesh mTLS.

    `peers` is set for TCP, because proxies may then exchange metadata at the beginning of the connection.
    """
    settings = db.settings
    exchanges_metadata = (
        peers and settings.telemetry.metadata_exchange and not settings.telemetry.disable_metadata_exchange_alpn
    )
    certificates = ServerCertificates(identity.tls_files, identity.secret_servers)
    alpn = PEER_ALPN if exchanges_metadata else HTTP_ALPN
    return build_downstream_tls(
        build_inbound_context(
            certificates, alpn, trust_domains(db), mesh_config(db).mesh_mTLS, settings.tls.compliance_policy
        )
    )


@derived
def server_tls_socket(db: Mesh, tls: ServerTLSSettings, identity: ServerIdentityKey) -> base_pb2.TransportSocket:
    """Return the transport socket that terminates the TLS that a Sidecar configures for a port."""
    certificates = ServerCertificates(identity.tls_files, identity.secret_servers)
    context = build_server_context(
        tls, certificates, defaults=mesh_config(db).tls_defaults, compliance=db.settings.tls.compliance_policy
    )
    return build_downstream_tls(context)


@derived
def black_hole_chain(db: Mesh, listening: ListeningFacet) -> InboundChain:
    """Return the chain that drops connections to the capture port itself."""
    port = listener_defaults(db).inbound_port
    parts = build_black_hole_chain(BLACK_HOLE_CHAIN, port, listener_options(db, listening).network, inbound=True)
    return InboundChain(parts, port, Inspection())


def chain_count(key: InboundChainsKey) -> int:
    """Return the number of filter chains for a key."""
    return len(key.matches(()))


# -- listeners ---------------------------------------------------------------------------------------------------------


def _limited_keys(db: Mesh, inbound: InboundFacet) -> Iterator[tuple[InboundChainsKey, ListeningFacet]]:
    """Yield the keys of all chains with the facet to use for them, which limits the copies of policies."""
    passthrough = passthrough_keys(db, inbound) if inbound.listening.interception != "NONE" else ()
    return limit_copies(db, inbound.listening, (*passthrough, *port_keys(db, inbound)), chain_count)


def denied_keys(db: Mesh, inbound: InboundFacet) -> list[InboundChainsKey]:
    """Return the keys of the chains that deny everything, because the policies are too large. Not memoised."""
    return [key for key, limited in _limited_keys(db, inbound) if limited.denies]


@derived
def inbound_listeners(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Return the inbound listeners of a workload, keyed by name."""
    identity, listening = ServerIdentityKey(inbound.tls_files, inbound.secret_servers), inbound.listening
    options = listener_options(db, listening)
    captured: list[InboundChain] = []
    listeners: list[ListenerParts] = []
    unnamed: list[InboundChain] = []
    for key, limited in _limited_keys(db, inbound):
        chains = inbound_chains(db, key, identity, limited)
        if key.binds_port:
            listeners.append(build_inbound_listener(key.name, key.bind, key.number, chains, options, ""))
        elif key.passthrough:
            unnamed += chains
        else:
            captured += chains
    if listening.interception != "NONE":
        everything = [black_hole_chain(db, listening), *unnamed, *captured]
        binds, port = wildcards(listening.ipv4, listening.ipv6), listener_defaults(db).inbound_port
        listeners.append(
            build_inbound_listener(names.VIRTUAL_INBOUND, binds, port, everything, options, listening.interception)
        )
    tracing = tracing_fields(db, listening, inbound.tags, inbound.scope)
    return {parts.name: assemble(parts, tracing) for parts in listeners}


def build_inbound_listener(
    name: str,
    binds: tuple[str, ...],
    port: int,
    chains: Sequence[InboundChain],
    options: ListenerOptions,
    interception: str,
) -> ListenerParts:
    """Return an inbound listener.

    `interception` is the capture mode (REDIRECT or TPROXY), or "" for a listener on a port of the pod.
    """
    tproxy = interception == "TPROXY"
    head = ListenerHead(
        name=name,
        binds=binds if options.dual_stack else binds[:1],
        port=port,
        inbound=True,
        max_accepts=options.max_accepts,
        exact_balance=options.exact_balance,
        filters=(
            *((ORIGINAL_DST,) if interception else ()),
            *((ORIGINAL_SRC,) if tproxy else ()),
            *build_inspectors(inspections(chains)),
        ),
        inspection_timeout=options.detection_timeout,
        access_logs=build_listener_access_logs(options.network.access_logs),
        transparent=tproxy,
    )
    return ListenerParts(
        name, build_listener_head(head).SerializeToString(deterministic=True), tuple(c.parts for c in chains)
    )


def inspections(chains: Sequence[InboundChain]) -> dict[int, Inspection]:
    """Return a mapping from port to the inspection that the chains of the port need together."""
    by_port: dict[int, Inspection] = {}
    for chain in chains:
        inspection = by_port.get(chain.port, Inspection())
        by_port[chain.port] = Inspection(
            inspection.tls or chain.inspection.tls, inspection.http or chain.inspection.http
        )
    return by_port

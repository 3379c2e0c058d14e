"""The internal listener of a sidecar for the payload of tunnels.

It has the same chains as the sidecar's ports, but without mesh TLS.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.inbound.inbound_chain_keys import passthrough_key, port_keys
from pilot.envoy.listener.inbound.inbound_listeners import (
    ServerIdentityKey,
    chain_count,
    inbound_chains,
    inspections,
)
from pilot.envoy.listener.listener_filters import ORIGINAL_DST, build_inspectors
from pilot.envoy.listener.listener_head import ListenerHead, build_listener_head
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import tracing_fields
from pilot.envoy.listener.policy_copies import limit_copies
from pilot.envoy.resource import Resource
from pilot.lib.duration import Duration
from pilot.mesh.model.facets import InboundFacet
from pilot.mesh.tables.database import Mesh


@derived
def tunnelled_listeners(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Return the internal listener for the payload of tunnels.

    Only connections to the workload's own addresses match a chain.
    """
    identity, listening = (
        ServerIdentityKey(inbound.tls_files, inbound.secret_servers),
        replace(inbound.listening, tunnelled=True),
    )
    keys = [*(key for key in port_keys(db, inbound) if not key.binds_port), passthrough_key(db)]
    tunnelled = [replace(key, mode="DISABLE", tunnel_targets=inbound.ips) for key in keys]
    chains = [
        chain
        for key, limited in limit_copies(db, listening, tunnelled, chain_count)
        for chain in inbound_chains(db, key, identity, limited)
    ]
    head = ListenerHead(
        names.MAIN_INTERNAL,
        (),
        0,
        inbound=True,
        filters=(ORIGINAL_DST, *build_inspectors(inspections(chains))),
        inspection_timeout=Duration(0),
        access_logs=build_listener_access_logs(listener_options(db, listening).network.access_logs),
        internal=True,
    )
    parts = ListenerParts(
        names.MAIN_INTERNAL,
        build_listener_head(head).SerializeToString(deterministic=True),
        tuple(c.parts for c in chains),
    )
    return {parts.name: assemble(parts, tracing_fields(db, listening, inbound.tags, inbound.scope))}

"""Derives the listener inside of a sidecar for what comes out of tunnels: the chains of its ports once more, without the TLS of the mesh."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from pilot.derive import derived
from pilot.envoy import names
from pilot.envoy.access_log.access_logs import build_listener_access_logs
from pilot.envoy.listener.inbound.inbound_chain_keys import passthrough_spec, port_specs
from pilot.envoy.listener.inbound.inbound_listeners import ServerIdentityKey, inbound_chains, inspections
from pilot.envoy.listener.listener_filters import ORIGINAL_DST, build_inspectors
from pilot.envoy.listener.listener_head import Frame, build_frame
from pilot.envoy.listener.listener_options import listener_options
from pilot.envoy.listener.listener_parts import ListenerParts, assemble
from pilot.envoy.listener.manager_template import tracing_part
from pilot.envoy.resource import Resource
from pilot.lib.duration import Duration
from pilot.mesh.model.facets import InboundFacet
from pilot.mesh.tables.database import Mesh


@derived
def tunnelled_listeners(db: Mesh, inbound: InboundFacet) -> Mapping[str, Resource]:
    """Returns the listener. Only connections to the workload's own addresses have a chain."""
    guard, listening = (
        ServerIdentityKey(inbound.tls_files, inbound.secret_servers),
        replace(inbound.listening, tunnelled=True),
    )
    specs = [*(spec for spec in port_specs(db, inbound) if not spec.to_port), passthrough_spec(db)]
    tunnelled = [replace(spec, mode="DISABLE", within=inbound.ips) for spec in specs]
    chains = [chain for spec in tunnelled for chain in inbound_chains(db, spec, guard, listening)]
    frame = Frame(
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
        names.MAIN_INTERNAL, build_frame(frame).SerializeToString(deterministic=True), tuple(c.parts for c in chains)
    )
    return {parts.name: assemble(parts, tracing_part(db, listening, inbound.tags, inbound.scope))}

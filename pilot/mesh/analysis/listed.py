"""The list of all checks between objects."""

from __future__ import annotations

from pilot.mesh.analysis.destination_rule import DESTINATION_RULES
from pilot.mesh.analysis.endpoint_slice import ENDPOINT_SLICES
from pilot.mesh.analysis.extension import TRAFFIC_EXTENSIONS, WASM_PLUGINS
from pilot.mesh.analysis.gateway import GATEWAYS
from pilot.mesh.analysis.mesh import MESH_CONFIG
from pilot.mesh.analysis.nack import NACKS
from pilot.mesh.analysis.policy import AUTHORIZATION_POLICIES, PEER_AUTHENTICATIONS, REQUEST_AUTHENTICATIONS
from pilot.mesh.analysis.route import ROUTES
from pilot.mesh.analysis.route_references import GATEWAY_CLASSES, ROUTE_REFERENCES
from pilot.mesh.analysis.service import SERVICES
from pilot.mesh.analysis.service_entry import SERVICE_ENTRIES
from pilot.mesh.analysis.sidecar import SIDECARS
from pilot.mesh.analysis.status import STATUSES
from pilot.mesh.analysis.telemetry import TELEMETRIES
from pilot.mesh.analysis.virtual_service import VIRTUAL_SERVICES
from pilot.mesh.analysis.without_effect import WITHOUT_EFFECT
from pilot.mesh.analysis.workload_entry import WORKLOAD_ENTRIES

CHECKS = (
    VIRTUAL_SERVICES,
    ROUTES,
    ROUTE_REFERENCES,
    GATEWAY_CLASSES,
    DESTINATION_RULES,
    GATEWAYS,
    SIDECARS,
    SERVICES,
    ENDPOINT_SLICES,
    SERVICE_ENTRIES,
    WORKLOAD_ENTRIES,
    PEER_AUTHENTICATIONS,
    REQUEST_AUTHENTICATIONS,
    AUTHORIZATION_POLICIES,
    TELEMETRIES,
    WASM_PLUGINS,
    TRAFFIC_EXTENSIONS,
    STATUSES,
    NACKS,
    WITHOUT_EFFECT,
    MESH_CONFIG,
)

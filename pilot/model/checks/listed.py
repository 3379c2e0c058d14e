"""Every check of objects against each other that needs nothing but the model."""

from __future__ import annotations

from pilot.model.checks.destination_rule import DESTINATION_RULES
from pilot.model.checks.extension import TRAFFIC_EXTENSIONS, WASM_PLUGINS
from pilot.model.checks.gateway import GATEWAYS
from pilot.model.checks.mesh import MESH_CONFIG
from pilot.model.checks.policy import AUTHORIZATION_POLICIES, PEER_AUTHENTICATIONS, REQUEST_AUTHENTICATIONS
from pilot.model.checks.refusal import REFUSALS
from pilot.model.checks.service import SERVICES
from pilot.model.checks.service_entry import SERVICE_ENTRIES
from pilot.model.checks.sidecar import SIDECARS
from pilot.model.checks.status import STATUSES
from pilot.model.checks.telemetry import TELEMETRIES
from pilot.model.checks.virtual_service import VIRTUAL_SERVICES
from pilot.model.checks.without_effect import WITHOUT_EFFECT
from pilot.model.checks.workload_entry import WORKLOAD_ENTRIES

CHECKS = (
    VIRTUAL_SERVICES,
    DESTINATION_RULES,
    GATEWAYS,
    SIDECARS,
    SERVICES,
    SERVICE_ENTRIES,
    WORKLOAD_ENTRIES,
    PEER_AUTHENTICATIONS,
    REQUEST_AUTHENTICATIONS,
    AUTHORIZATION_POLICIES,
    TELEMETRIES,
    WASM_PLUGINS,
    TRAFFIC_EXTENSIONS,
    STATUSES,
    REFUSALS,
    WITHOUT_EFFECT,
    MESH_CONFIG,
)

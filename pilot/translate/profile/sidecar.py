"""Which resources a sidecar gets."""
from __future__ import annotations

from pilot.derive import derived
from pilot.model.inputs import Mesh
from pilot.translate.profile.plan import Plan


@derived
def sidecar_plan(db: Mesh, node_id: str) -> Plan:
    """The groups of one sidecar."""
    return Plan({})

"""JSON web tokens that a workload understands.

https://istio.io/latest/docs/reference/config/security/request_authentication/
"""
from __future__ import annotations

from pilot.derive import derived
from pilot.model.config.object import ObjectKey
from pilot.model.config.request_authentication import JWTRule
from pilot.model.inputs import Mesh
from pilot.model.views.kinds.request_authentications import request_authentications
from pilot.model.views.mesh import mesh_config


@derived
def jwt_rules(db: Mesh, policies: tuple[ObjectKey, ...]) -> tuple[JWTRule, ...]:
    """Returns the rules of RequestAuthentications, sorted by issuer; of one issuer the workload's own namespace comes before the mesh."""
    root = mesh_config(db).root_namespace
    rows = (row for key in sorted(policies, key=lambda k: k.namespace == root) if (row := request_authentications.get(db, key)) is not None)
    return tuple(sorted((rule for row in rows for rule in row.spec.jwt_rules), key=lambda r: r.issuer))

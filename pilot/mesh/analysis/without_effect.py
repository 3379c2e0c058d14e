"""Objects of kinds that have no effect under the current settings."""

from __future__ import annotations

from pilot.config.group_kind import EXPERIMENTAL_GATEWAY_API, GroupKind
from pilot.config.kinds.gateway_api import BACKEND, BACKEND_TRAFFIC_POLICY, INFERENCE_POOL, UDP_ROUTE
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.tables.database import Mesh

_ALPHA = (
    (GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackend"), BACKEND),
    (GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackendTrafficPolicy"), BACKEND_TRAFFIC_POLICY),
)

_REASONS = {
    UDP_ROUTE.id: "listeners do not support UDP",
    INFERENCE_POOL.id: "ENABLE_GATEWAY_API_INFERENCE_EXTENSION is off",
}


@derived
def _refs(db: Mesh) -> tuple[ObjectRef, ...]:
    routes = tuple(ObjectRef(UDP_ROUTE.id, *key) for key in UDP_ROUTE.all_keys(db))
    alpha = (
        ()
        if db.settings.gateway_api.alpha
        else tuple(ObjectRef(kind, *key) for kind, listed in _ALPHA for key in listed.all_keys(db))
    )
    pools = (
        ()
        if db.settings.gateway_api.inference
        else tuple(ObjectRef(INFERENCE_POOL.id, *key) for key in INFERENCE_POOL.all_keys(db))
    )
    return (*routes, *alpha, *pools)


@derived
def _problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    reason = _REASONS.get(ref.kind, "alpha kinds require PILOT_ENABLE_ALPHA_GATEWAY_API")
    return (
        Problem(
            code="no-effect",
            object=ref,
            path="kind",
            message=f"{ref.kind.name} has no effect: {reason}",
            severity=Severity.INFO,
        ),
    )


WITHOUT_EFFECT = Check("without effect", _refs, _problems)

"""Objects of kinds that are read and change nothing, so that whoever writes one is told so."""

from __future__ import annotations

from pilot.config.group_kind import EXPERIMENTAL_GATEWAY_API, GATEWAY_API, GroupKind
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.mesh.analysis.check import Check
from pilot.mesh.kinds.backend_traffic_policies import backend_traffic_policies
from pilot.mesh.kinds.backends import backends
from pilot.mesh.kinds.inference_pools import inference_pools
from pilot.mesh.kinds.udp_routes import udp_routes
from pilot.mesh.lowering.gateway_api.inference_pools import POOL
from pilot.mesh.tables.database import Mesh

_UDP_ROUTE = GroupKind(GATEWAY_API, "UDPRoute")
_ALPHA = (
    (GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackend"), backends),
    (GroupKind(EXPERIMENTAL_GATEWAY_API, "XBackendTrafficPolicy"), backend_traffic_policies),
)

_WHY = {_UDP_ROUTE: "no listener takes UDP", POOL: "ENABLE_GATEWAY_API_INFERENCE_EXTENSION is off"}


@derived
def _refs(db: Mesh) -> tuple[ObjectRef, ...]:
    routes = tuple(ObjectRef(_UDP_ROUTE, *key) for key in udp_routes.all_keys(db))
    alpha = (
        ()
        if db.settings.gateway_api.alpha
        else tuple(ObjectRef(kind, *key) for kind, listed in _ALPHA for key in listed.all_keys(db))
    )
    pools = (
        ()
        if db.settings.gateway_api.inference
        else tuple(ObjectRef(POOL, *key) for key in inference_pools.all_keys(db))
    )
    return (*routes, *alpha, *pools)


@derived
def _problems(db: Mesh, ref: ObjectRef) -> tuple[Problem, ...]:
    why = _WHY.get(ref.kind, "kinds in alpha are obeyed with PILOT_ENABLE_ALPHA_GATEWAY_API alone")
    return (
        Problem(
            code="no-effect",
            object=ref,
            path="kind",
            message=f"{ref.kind.name} has no effect: {why}",
            severity=Severity.NOTICE,
        ),
    )


WITHOUT_EFFECT = Check("without effect", _refs, _problems)

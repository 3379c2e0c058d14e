"""The status of InferencePools. It has an entry for each Gateway that has a route to the pool."""

from __future__ import annotations

from pilot.config.gateway_api.inference_pool import InferencePool
from pilot.config.gateway_api.reference import ParentReference
from pilot.config.kinds.gateway_api import HTTP_ROUTE, INFERENCE_POOL, KUBERNETES_GATEWAY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived
from pilot.mesh.lowering.gateway_api.attachments import attachments
from pilot.mesh.lowering.gateway_api.backend_routes import gateways_routing_to, routes_to_backend
from pilot.mesh.model.condition import Fault, condition
from pilot.mesh.status.route_status import ParentStatus, build_conditions
from pilot.mesh.tables.database import Mesh

MAX_PARENTS = 32


@derived
def pool_status(db: Mesh, key: ObjectKey) -> tuple[ParentStatus, ...] | None:
    """Return the status of a pool, with an entry for each Gateway. Return None if InferencePools are disabled."""
    row = INFERENCE_POOL.get(db, key)
    if row is None or not db.settings.gateway_api.inference:
        return None
    resolved = condition(
        "ResolvedRefs", _picker_fault(db, row), "ResolvedRefs", "Referenced ExtensionRef resolved successfully"
    )
    gateways = gateways_routing_to(db, ObjectRef(INFERENCE_POOL.id, *key))[:MAX_PARENTS]
    accepted = "Referenced by an HTTPRoute accepted by the parentRef Gateway"
    return tuple(
        ParentStatus(
            ParentReference(name=gateway.name, namespace=gateway.namespace),
            (condition("Accepted", _route_fault(db, key, gateway), "Accepted", accepted), resolved),
        )
        for gateway in gateways
    )


def _picker_fault(db: Mesh, row: Object[InferencePool]) -> Fault | None:
    ref = row.spec.endpoint_picker_ref
    if (ref.group, ref.kind or "Service") != ("", "Service"):
        return Fault("InvalidExtensionRef", f"Unsupported ExtensionRef kind {ref.kind}")
    if not ref.name:
        return Fault("InvalidExtensionRef", "ExtensionRef not defined")
    if ref.port is None:
        return Fault("InvalidExtensionRef", "endpointPickerRef.port is required")
    if SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, row.namespace, ref.name)) is None:
        return Fault("InvalidExtensionRef", f"Referenced ExtensionRef not found {ref.name}")
    return None


def _route_fault(db: Mesh, key: ObjectKey, gateway: ObjectKey) -> Fault | None:
    """Return the reason why a Gateway accepts no route to a pool, or None if it accepts one."""
    fault: Fault | None = None
    for route in routes_to_backend(db, ObjectRef(INFERENCE_POOL.id, *key)):
        matching = [
            attachment
            for attachment in attachments(db, route)
            if (attachment.kind, attachment.target) == (KUBERNETES_GATEWAY.id, gateway)
        ]
        if route.kind != HTTP_ROUTE.id or not matching:
            continue
        accepted = build_conditions(matching, None)[0]
        if accepted.status:
            return None
        message = (
            f"Referenced HTTPRoute {route.namespace}/{route.name} "
            f"not accepted by Gateway {gateway.namespace}/{gateway.name}"
        )
        fault = fault or Fault("HTTPRouteNotAccepted", f"{message}: {accepted.message}")
    return fault or Fault("HTTPRouteNotAccepted", "No HTTPRoute references this InferencePool")

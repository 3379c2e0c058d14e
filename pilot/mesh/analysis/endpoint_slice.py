"""Checks that a Service with endpoints has a ready one."""

from __future__ import annotations

from pilot.config.indexes import SERVICE_NAME_LABEL, is_unready_slice
from pilot.config.kinds.kubernetes import ENDPOINT_SLICE, SERVICE
from pilot.config.kubernetes.endpoint_slice import EndpointSlice
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import Problem, Problems, error
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.opaque_port import REQUESTS_FAIL, failure_of
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return ENDPOINT_SLICE.keys(db, "unready", True)


@derived
def endpoint_slice_problems(db: Mesh, key: RegistryKey) -> tuple[Problem, ...]:
    """Return a problem if no endpoint of a Service is ready, and this is the first EndpointSlice that has endpoints."""
    row = ENDPOINT_SLICE.get(db, key)
    return attribute(row, _check(db, key, row)) if row is not None else ()


ENDPOINT_SLICES = Check("EndpointSlice", _keys, endpoint_slice_problems)


def _check(db: Mesh, key: RegistryKey, o: Object[EndpointSlice]) -> Problems:
    owner = ObjectKey(key.namespace, o.labels.get(SERVICE_NAME_LABEL, ""))
    rows = {other: ENDPOINT_SLICE.get(db, other) for other in ENDPOINT_SLICE.keys(db, "service", owner)}
    slices = {other: row for other, row in sorted(rows.items()) if row is not None and row.spec.endpoints}
    if key != next(iter(slices), None) or not all(is_unready_slice(other, row) for other, row in slices.items()):
        return
    if not any(SERVICE.get(db, RegistryKey(other.cluster, *owner)) is not None for other in slices):
        return
    count = sum(len(row.spec.endpoints) for row in slices.values())
    text = "its only endpoint is not ready" if count == 1 else f"none of its {count} endpoints is ready"
    ref = ServiceRef(kubernetes_hostname(owner.name, owner.namespace, db.settings.registry.domain), owner.namespace)
    target = service(db, ref)
    effect = failure_of(target) if target is not None else REQUESTS_FAIL
    yield error("no-ready-endpoint", "endpoints", f"Service {owner.namespace}/{owner.name}: {text}, so {effect}")

"""The Gateways that have routes to InferencePools, and the shadow Services of these pools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.kinds.gateway_api import INFERENCE_POOL
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived, hub
from pilot.mesh.lowering.gateway_api.backend_routes import gateways_routing_to
from pilot.mesh.lowering.gateway_api.inference_pools import FIRST_PORT, POOL_LABEL, shadow_labels, shadow_name
from pilot.mesh.tables.database import Mesh


class ShadowService(NamedTuple):
    """The desired shadow Service of a pool.

    `is_current` is True if nothing needs to be written: the Service is up to date, or its name belongs to an unrelated
    Service.
    """

    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    ports: tuple[int, ...]
    app_protocol: str
    is_current: bool


@derived
def pool_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Return the keys of all InferencePools, or () if InferencePools are disabled."""
    return INFERENCE_POOL.all_keys(db) if db.settings.gateway_api.inference else ()


@hub
def _gateways_of_pools(db: Mesh) -> frozenset[ObjectKey]:
    return frozenset(
        gateway for key in pool_keys(db) for gateway in gateways_routing_to(db, ObjectRef(INFERENCE_POOL.id, *key))
    )


@derived
def has_inference_pools(db: Mesh, gateway: ObjectKey) -> bool:
    """Return True if a Gateway has a route to an InferencePool."""
    return gateway in _gateways_of_pools(db)


@derived
def shadow_service(db: Mesh, key: ObjectKey) -> ShadowService | None:
    """Return the shadow Service of a pool.

    Return None if no Gateway has a route to the pool, or if the pool names no endpoint picker.
    """
    row = INFERENCE_POOL.get(db, key)
    if row is None or not gateways_routing_to(db, ObjectRef(INFERENCE_POOL.id, *key)):
        return None
    ref = row.spec.endpoint_picker_ref
    if ref.port is None or not ref.name:
        return None
    name, labels = shadow_name(key.name), shadow_labels(key.name, ref.name, ref.port.number, ref.failure_mode)
    ports, protocol = tuple(port.number for port in row.spec.target_ports), row.spec.app_protocol
    existing = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, key.namespace, name))
    desired = ShadowService(name, labels, row.spec.selector.match_labels, ports, protocol, False)
    return desired._replace(
        is_current=existing is not None and (POOL_LABEL not in existing.labels or _is_up_to_date(existing, desired))
    )


def _is_up_to_date(existing: Object[Service], desired: ShadowService) -> bool:
    ports = [(FIRST_PORT + position, port, desired.app_protocol) for position, port in enumerate(desired.ports)]
    selects_same = dict(existing.spec.selector) == dict(desired.selector) and _ports(existing.spec) == ports
    return selects_same and desired.labels.items() <= existing.labels.items()


def _ports(spec: Service) -> list[tuple[int, int | str | None, str]]:
    return [(port.port, port.target_port, port.app_protocol or "") for port in spec.ports]

"""Which Gateways have routes to InferencePools, and the Service that each pool with such a Gateway is to have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.kinds.gateway_api import INFERENCE_POOL
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.derive import derived, hub
from pilot.mesh.lowering.gateway_api.inference_pools import FIRST_PORT, POOL_LABEL, shadow_labels, shadow_name
from pilot.mesh.lowering.gateway_api.policy_ancestors import gateways_before
from pilot.mesh.tables.database import Mesh


class ShadowService(NamedTuple):
    """The Service of a pool. `stands`: it is there as it should be, or another's has its name, which is left alone."""

    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    ports: tuple[int, ...]
    app_protocol: str
    stands: bool


@derived
def pool_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    """Returns every InferencePool; none where they are not obeyed."""
    return INFERENCE_POOL.all_keys(db) if db.settings.gateway_api.inference else ()


@hub
def _gateways_of_pools(db: Mesh) -> frozenset[ObjectKey]:
    return frozenset(
        gateway for key in pool_keys(db) for gateway in gateways_before(db, ObjectRef(INFERENCE_POOL.id, *key))
    )


@derived
def picks_endpoints(db: Mesh, gateway: ObjectKey) -> bool:
    """Returns whether a Gateway has a route to some pool."""
    return gateway in _gateways_of_pools(db)


@derived
def shadow_service(db: Mesh, key: ObjectKey) -> ShadowService | None:
    """Returns the Service of a pool; None for one that no Gateway has a route to, or that does not say who picks."""
    row = INFERENCE_POOL.get(db, key)
    if row is None or not gateways_before(db, ObjectRef(INFERENCE_POOL.id, *key)):
        return None
    ref = row.spec.endpoint_picker_ref
    if ref.port is None or not ref.name:
        return None
    name, labels = shadow_name(key.name), shadow_labels(key.name, ref.name, ref.port.number, ref.failure_mode)
    ports, protocol = tuple(port.number for port in row.spec.target_ports), row.spec.app_protocol
    present = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, key.namespace, name))
    made = ShadowService(name, labels, row.spec.selector.match_labels, ports, protocol, False)
    return made._replace(
        stands=present is not None and (POOL_LABEL not in present.labels or _is_as_wanted(present, made))
    )


def _is_as_wanted(present: Object[Service], made: ShadowService) -> bool:
    ports = [(FIRST_PORT + n, port, made.app_protocol) for n, port in enumerate(made.ports)]
    same = dict(present.spec.selector) == dict(made.selector) and _ports(present.spec) == ports
    return same and made.labels.items() <= present.labels.items()


def _ports(spec: Service) -> list[tuple[int, int | str | None, str]]:
    return [(port.port, port.target_port, port.app_protocol or "") for port in spec.ports]

"""A kind for tests: a ConfigMap with a key `spec` is lowered to a VirtualService with the same name."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.kubernetes import CONFIG_MAP
from pilot.config.networking.virtual_service import VirtualService
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import Gather, derived
from pilot.mesh.tables.database import Mesh
from testing.mesh.objects import Plain, make
from testing.mesh.world import rows_of


def config_map(name: str, spec: str, namespace: str, day: int = 1) -> Plain:
    """Return the ConfigMap for a VirtualService with a spec in YAML."""
    plain = make("ConfigMap", name, "{}", namespace, day)
    del plain["spec"]
    return plain | {"apiVersion": "v1", "data": {"spec": spec}}


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return CONFIG_MAP.table(db).all_keys()


@derived
def _lowered(db: Mesh, key: RegistryKey) -> Object[VirtualService] | None:
    row = CONFIG_MAP.table(db).get(key)
    if row is None or "spec" not in row.spec.data:
        return None
    plain = make("VirtualService", row.name, row.spec.data["spec"], row.namespace)
    plain["metadata"]["creationTimestamp"] = row.created
    (virtual_service,) = rows_of([plain]).values()
    return virtual_service


_lowered_all: Gather[RegistryKey, [], Object[VirtualService]] = Gather("lowered from ConfigMaps", _keys, _lowered)


@derived
def virtual_services_of_config_maps(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    """Return the VirtualServices that ConfigMaps are lowered to."""
    return {virtual_service.key: virtual_service for virtual_service in _lowered_all(db).values()}

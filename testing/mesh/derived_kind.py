"""A kind for tests alone: a ConfigMap with a key `spec` stands for the VirtualService of its name."""

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
    """The ConfigMap that stands for a VirtualService with that spec (YAML)."""
    made = make("ConfigMap", name, "{}", namespace, day)
    del made["spec"]
    return made | {"apiVersion": "v1", "data": {"spec": spec}}


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return CONFIG_MAP.table(db).all_keys()


@derived
def _made_of(db: Mesh, key: RegistryKey) -> Object[VirtualService] | None:
    row = CONFIG_MAP.table(db).get(key)
    if row is None or "spec" not in row.spec.data:
        return None
    plain = make("VirtualService", row.name, row.spec.data["spec"], row.namespace)
    plain["metadata"]["creationTimestamp"] = row.created
    (made,) = rows_of([plain]).values()
    return made


_made: Gather[RegistryKey, [], Object[VirtualService]] = Gather("made of ConfigMaps", _keys, _made_of)


@derived
def virtual_services_of_config_maps(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    """The VirtualServices that ConfigMaps stand for."""
    return {made.key: made for made in _made(db).values()}

"""A kind for tests alone: a ConfigMap with a key `spec` stands for the VirtualService of its name."""
from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

from pilot.derive import Gather, derived
from pilot.model.config.object import Object, ObjectKey, RegistryKey
from pilot.model.config.virtual_service import VirtualService
from pilot.model.inputs import Mesh
from tests.support.objects import Plain, make
from tests.support.world import rows_of


def config_map(name: str, spec: str, namespace: str, day: int = 1) -> Plain:
    """The ConfigMap that stands for a VirtualService with that spec (YAML)."""
    made = make("ConfigMap", name, "{}", namespace, day)
    del made["spec"]
    return made | {"apiVersion": "v1", "data": {"spec": spec}}


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    return db.config_maps.all_keys()


@derived
def _made_of(db: Mesh, key: RegistryKey) -> Object[VirtualService] | None:
    row = db.config_maps.get(key)
    if row is None or "spec" not in row.spec.data:
        return None
    plain = make("VirtualService", row.name, row.spec.data["spec"], row.namespace)
    plain["metadata"]["creationTimestamp"] = row.created
    (made,) = rows_of([plain]).values()
    return made


_made: Gather[RegistryKey, [], Object[VirtualService]] = Gather("made of ConfigMaps", _keys, _made_of)


@derived
def _by_key(db: Mesh) -> Mapping[ObjectKey, Object[VirtualService]]:
    return {made.key: made for made in _made(db).values()}


@derived
def _one(db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
    return _made_of(db, RegistryKey(db.settings.registry.cluster_id, *key))


@derived
def _bucket(db: Mesh, index: str, bucket: Hashable) -> tuple[ObjectKey, ...]:
    extract: Any = db.virtual_services._indexes[index]
    return tuple(sorted(key for key, made in _by_key(db).items() if bucket in set(extract(key, made))))


@derived
def _all(db: Mesh) -> tuple[ObjectKey, ...]:
    return tuple(sorted(_by_key(db)))


class OfConfigMaps:
    """The source of VirtualServices that are made of ConfigMaps."""

    def get(self, db: Mesh, key: ObjectKey) -> Object[VirtualService] | None:
        return _one(db, key)

    def keys(self, db: Mesh, index: str, bucket: Hashable) -> tuple[ObjectKey, ...]:
        return _bucket(db, index, bucket)

    def all_keys(self, db: Mesh) -> tuple[ObjectKey, ...]:
        return _all(db)

"""Derives the configuration of users' extensions that the filters of a proxy ask for by name."""

from __future__ import annotations

import hashlib

import msgspec

from pilot.config.extensions.traffic_extension import TrafficExtension
from pilot.config.object import Object, ObjectKey
from pilot.derive import Lookup, derived
from pilot.envoy.extension_config import build_extension_config, build_stand_in, is_file
from pilot.envoy.names import parse_extension_config
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import EXTENSION
from pilot.mesh.kinds.traffic_extensions import traffic_extensions
from pilot.mesh.model.facets import ExtensionReaderFacet
from pilot.mesh.security.pull_secrets import pull_secret
from pilot.mesh.tables.database import Mesh


@derived
def _discovered(db: Mesh, name: str, reader: ExtensionReaderFacet) -> Resource | None:
    """Returns the configuration of that name; None for one that is not of an extension of the proxy's."""
    key = ObjectKey(*found) if (found := parse_extension_config(name)) is not None else None
    if key is None or key not in reader.applied:
        return None
    return _module(db, name, key, reader.cluster) if reader.fetched else _own_module(db, name, key)


@derived
def _module(db: Mesh, name: str, key: ObjectKey, cluster: str | None) -> Resource | None:
    """Returns the configuration of a module, for proxies to which secrets of a cluster are told (None: no secrets)."""
    found = traffic_extensions.get(db, key)
    if found is None or found.spec.wasm is None:
        return None
    named, secret = found.spec.wasm.image_pull_secret, None
    if named:
        secret = pull_secret(db, key.namespace, named, cluster) if cluster is not None else ""
    built = build_extension_config(name, f"{key.namespace}.{key.name}", found.spec.wasm, _version(found), secret)
    return Resource.of(EXTENSION, built)


@derived
def _own_module(db: Mesh, name: str, key: ObjectKey) -> Resource | None:
    """Returns the configuration of a module, for proxies that have nothing but files; what stands in for any other."""
    found = traffic_extensions.get(db, key)
    if found is None or found.spec.wasm is None:
        return None
    if is_file(found.spec.wasm):
        return _module(db, name, key, None)
    return Resource.of(EXTENSION, build_stand_in(name, found.spec.wasm))


def _version(o: Object[TrafficExtension]) -> str:
    """Returns a text that is another one once the object says something else, or is a new one."""
    return hashlib.sha256(msgspec.json.encode((o.created, o.spec), order="deterministic")).hexdigest()[:16]


discovered_extensions: Lookup[str, [frozenset[str], ExtensionReaderFacet], Resource] = Lookup(
    "discovered_extensions", _discovered
)
"""The configuration of the extensions that proxies name."""

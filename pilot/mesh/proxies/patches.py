"""The patches of EnvoyFilters that apply to a proxy, in their order, by what they change. A proxy without any costs a lookup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import re2

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyConfigObjectPatch, ProxyMatch
from pilot.config.object import ObjectKey, age
from pilot.config.validation.traffic.envoy_filter import LONGEST_VERSION
from pilot.derive import derived
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway, server
from pilot.mesh.model.facets import PatchContext, PatchFacet, PatchKey
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.security.policies import in_scope, proxy_policies
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from pilot.mesh.tables.proxies import find_proxy

_ROUTES = frozenset(("ROUTE_CONFIGURATION", "VIRTUAL_HOST", "HTTP_ROUTE"))
_LISTENERS = frozenset(("LISTENER", "FILTER_CHAIN", "LISTENER_FILTER", "NETWORK_FILTER", "HTTP_FILTER"))
_APPLY_TO: Mapping[str, frozenset[str]] = {
    "clusters": frozenset(("CLUSTER",)),
    "listeners": _LISTENERS,
    "routes": _ROUTES,
    "extensions": frozenset(("EXTENSION_CONFIG",)),
}


def configured_patch(db: Mesh, key: PatchKey) -> EnvoyConfigObjectPatch | None:
    """Returns a patch as it is written; None where its object has none at the position. No node of its own."""
    found = ENVOY_FILTER.get(db, key.filter)
    return (
        found.spec.config_patches[key.position]
        if found is not None and key.position < len(found.spec.config_patches)
        else None
    )


# -- which apply -----------------------------------------------------------------------------------------------------------


def selecting_filters(db: Mesh, node_id: str) -> tuple[ObjectKey, ...]:
    """Returns the EnvoyFilters that select a proxy, whatever their patches are for. No node of its own."""
    return in_scope(proxy_policies(db, node_id), "patches").of(ENVOY_FILTER.id.name)


@derived
def ordered_patches(db: Mesh, filters: tuple[ObjectKey, ...]) -> tuple[PatchKey, ...]:
    """Returns all patches of some EnvoyFilters as they are applied: by priority, those of the root namespace first, then by age."""
    root = root_namespace(db)
    found = [row for key in filters if (row := ENVOY_FILTER.get(db, key)) is not None]
    found.sort(key=lambda row: (row.spec.priority, row.namespace != root, age(row)))
    return tuple(PatchKey(row.key, position) for row in found for position in range(len(row.spec.config_patches)))


class _Asked(NamedTuple):
    """What some patches ask of a proxy: whether any asks for its version, and the keys of its metadata that they ask for."""

    version: bool
    metadata: tuple[str, ...]


@derived
def _asked(db: Mesh, filters: tuple[ObjectKey, ...]) -> _Asked:
    asking = _configured(db, ordered_patches(db, filters))
    found = [patch.match.proxy for patch in asking if patch.match is not None and patch.match.proxy is not None]
    return _Asked(
        any(match.proxy_version for match in found), tuple(sorted({key for match in found for key in match.metadata}))
    )


@derived
def _patches_for(
    db: Mesh, filters: tuple[ObjectKey, ...], version: str, metadata: tuple[str | None, ...]
) -> tuple[PatchKey, ...]:
    """Returns the patches of some EnvoyFilters that are for proxies of a version with these values of the metadata that they ask for."""
    values = dict(zip(_asked(db, filters).metadata, metadata, strict=True))
    return tuple(key for key in ordered_patches(db, filters) if _is_for(configured_patch(db, key), version, values))


def proxy_patches(db: Mesh, node_id: str) -> tuple[PatchKey, ...]:
    """Returns the patches of a proxy: of the EnvoyFilters that select it, without those for proxies of another version or with other metadata.
    No node of its own: proxies that say the same of what is asked for share it."""
    filters = selecting_filters(db, node_id)
    if not filters:
        return ()
    proxy, asked = find_proxy(db, node_id), _asked(db, filters)
    said = (proxy.metadata.get(key) for key in asked.metadata)
    return _patches_for(
        db,
        filters,
        proxy.version if asked.version else "",
        tuple(value if isinstance(value, str) else None for value in said),
    )


def _configured(db: Mesh, keys: Iterable[PatchKey]) -> Iterator[EnvoyConfigObjectPatch]:
    return (found for key in keys if (found := configured_patch(db, key)) is not None)


def _is_for(patch: EnvoyConfigObjectPatch | None, version: str, metadata: Mapping[str, str | None]) -> bool:
    match = patch.match.proxy if patch is not None and patch.match is not None else None
    return patch is not None and (match is None or _matches_proxy(match, version, metadata))


def _matches_proxy(match: ProxyMatch, version: str, metadata: Mapping[str, str | None]) -> bool:
    """Returns whether a proxy has the metadata, and a version in which the regular expression is found; one that tells no version has none."""
    if match.proxy_version and not _has_version(match.proxy_version, version):
        return False
    return all(metadata.get(key) == value for key, value in match.metadata.items())


def _has_version(pattern: str, version: str) -> bool:
    return len(pattern) <= LONGEST_VERSION and bool(version) and re2.search(pattern, version) is not None


# -- what they change ------------------------------------------------------------------------------------------------------


class _Side(NamedTuple):
    """The patches of one type of resources on one side of a proxy. `asks_port`: one asks for a port of routes; `asks_service`: one asks for
    the service of a cluster."""

    patches: tuple[PatchKey, ...]
    asks_port: bool
    asks_service: bool


@derived
def _side(db: Mesh, patched: str, context: PatchContext, patches: tuple[PatchKey, ...]) -> _Side:
    """Returns those patches that change clusters, listeners, routes or extensions (`patched`) on one side. The routes of a sidecar's inbound side
    are in its listeners; an extension config is for whichever side asks for it."""
    wanted = _APPLY_TO[patched] | (_ROUTES if (patched, context) == ("listeners", "SIDECAR_INBOUND") else frozenset())
    keys = tuple(
        key for key in patches if (found := configured_patch(db, key)) is not None and _changes(found, wanted, context)
    )
    matches = [patch.match for patch in _configured(db, keys) if patch.match is not None]
    return _Side(
        keys,
        any(match.route_configuration is not None and match.route_configuration.port_number for match in matches),
        any(match.cluster is not None and match.cluster.service for match in matches),
    )


def _changes(patch: EnvoyConfigObjectPatch, wanted: frozenset[str], context: str) -> bool:
    asked = patch.match.context if patch.match is not None else "ANY"
    return patch.apply_to in wanted and (asked in ("ANY", context) or patch.apply_to == "EXTENSION_CONFIG")


def patch_facet(
    db: Mesh, node_id: str, patches: tuple[PatchKey, ...], patched: str, context: PatchContext
) -> PatchFacet:
    """Returns what of a proxy's patches is for one type of resources on one side. No node of its own."""
    side = _side(db, patched, context, patches)
    ports = _ports(db, node_id) if side.asks_port and find_proxy(db, node_id).type is NodeType.ROUTER else ()
    hosts = _hosts(db, node_id) if side.asks_service and context == "SIDECAR_INBOUND" else ()
    return PatchFacet(context, side.patches, ports, hosts)


def _ports(db: Mesh, node_id: str) -> tuple[tuple[int, frozenset[int]], ...]:
    """Returns for each port that the routes of a router are for the ports that its servers name."""
    ports: dict[int, set[int]] = {}
    for route, keys in merged_gateway(db, gateway_selection_key(db, node_id)).routes:
        named = (found.port.number for key in keys if (found := server(db, key)) is not None and found.port is not None)
        ports.setdefault(route.port, set()).update(named)
    return tuple((port, frozenset(named)) for port, named in sorted(ports.items()))


def _hosts(db: Mesh, node_id: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Returns the services of each port of a sidecar's workload."""
    hosts: dict[int, set[str]] = {}
    for target in service_targets(db, node_id):
        hosts.setdefault(target.target_port, set()).add(target.ref.hostname)
    return tuple((port, frozenset(names)) for port, names in sorted(hosts.items()))

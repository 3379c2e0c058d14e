"""The EnvoyFilter patches that apply to a proxy, in order, for each type of resource.

If no patches apply to a proxy, a single lookup is enough to find this out.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import NamedTuple

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyConfigObjectPatch, ProxyMatch
from pilot.config.object import ObjectKey, age
from pilot.config.validation.traffic.envoy_filter import LONGEST_VERSION
from pilot.derive import derived, derived_in_steps
from pilot.lib.regex import is_found
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway, server
from pilot.mesh.model.facets import PatchFacet, PatchKey, ProxyPatchContext
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
    """Return a patch, or None if it does not exist. Not memoised."""
    row = ENVOY_FILTER.get(db, key.filter)
    patches = row.spec.config_patches if row is not None else ()
    return patches[key.position] if key.position < len(patches) else None


# -- selection ---------------------------------------------------------------------------------------------------------


def selecting_filters(db: Mesh, node_id: str) -> tuple[ObjectKey, ...]:
    """Return the EnvoyFilters that select a proxy. Their patches are not considered. Not memoised."""
    return in_scope(proxy_policies(db, node_id), "patches").of(ENVOY_FILTER.id.name)


@derived
def ordered_patches(db: Mesh, filters: tuple[ObjectKey, ...]) -> tuple[PatchKey, ...]:
    """Return all patches of EnvoyFilters in the order in which they are applied.

    They are ordered by the priority of the EnvoyFilter. If priorities are equal, patches in the root namespace are
    first, and older patches precede newer ones.
    """
    root = root_namespace(db)
    rows = [row for key in filters if (row := ENVOY_FILTER.get(db, key)) is not None]
    rows.sort(key=lambda row: (row.spec.priority, row.namespace != root, age(row)))
    return tuple(PatchKey(row.key, position) for row in rows for position in range(len(row.spec.config_patches)))


class _MatchedProperties(NamedTuple):
    """The properties of proxies that patches match on: whether the version is one of them, and the metadata keys."""

    version: bool
    metadata: tuple[str, ...]


@derived
def _matched_properties(db: Mesh, filters: tuple[ObjectKey, ...]) -> _MatchedProperties:
    patches = _configured(db, ordered_patches(db, filters))
    matches = [patch.match.proxy for patch in patches if patch.match is not None and patch.match.proxy is not None]
    return _MatchedProperties(
        any(match.proxy_version for match in matches),
        tuple(sorted({key for match in matches for key in match.metadata})),
    )


@derived_in_steps
def _patches_for(
    db: Mesh, filters: tuple[ObjectKey, ...], version: str, metadata: tuple[str | None, ...]
) -> Generator[None, None, tuple[PatchKey, ...]]:
    """Return the patches that match proxies with this version and these values of the matched metadata keys."""
    values = dict(zip(_matched_properties(db, filters).metadata, metadata, strict=True))
    matching: list[PatchKey] = []
    has_version: dict[str, bool] = {}
    for key in ordered_patches(db, filters):
        patch = configured_patch(db, key)
        match = patch.match.proxy if patch is not None and patch.match is not None else None
        if match is not None and match.proxy_version and match.proxy_version not in has_version:
            has_version[match.proxy_version] = _has_version(match.proxy_version, version)
            yield
        if patch is not None and (match is None or _matches_proxy(match, has_version, values)):
            matching.append(key)
    return tuple(matching)


def proxy_patches(db: Mesh, node_id: str) -> tuple[PatchKey, ...]:
    """Return the patches that match a proxy.

    Not memoised itself, but proxies with equal values of the matched properties share a memoised result.
    """
    filters = selecting_filters(db, node_id)
    if not filters:
        return ()
    proxy, properties = find_proxy(db, node_id), _matched_properties(db, filters)
    values = (proxy.metadata.get(key) for key in properties.metadata)
    return _patches_for(
        db,
        filters,
        proxy.version if properties.version else "",
        tuple(value if isinstance(value, str) else None for value in values),
    )


def _configured(db: Mesh, keys: Iterable[PatchKey]) -> Iterator[EnvoyConfigObjectPatch]:
    return (patch for key in keys if (patch := configured_patch(db, key)) is not None)


def _matches_proxy(match: ProxyMatch, has_version: Mapping[str, bool], metadata: Mapping[str, str | None]) -> bool:
    """Return whether a proxy's metadata has the matched values, and the regular expression matches its version."""
    if match.proxy_version and not has_version[match.proxy_version]:
        return False
    return all(metadata.get(key) == value for key, value in match.metadata.items())


def _has_version(pattern: str, version: str) -> bool:
    return len(pattern) <= LONGEST_VERSION and bool(version) and is_found(pattern, version)


# -- the resources that patches change ---------------------------------------------------------------------------------


class _Side(NamedTuple):
    """The patches for one type of resource on one side of a proxy.

    `matches_port` says whether a patch matches on the port of a route configuration. `matches_service` says whether a
    patch matches on the service of a cluster.
    """

    patches: tuple[PatchKey, ...]
    matches_port: bool
    matches_service: bool


@derived
def _side(db: Mesh, patched: str, context: ProxyPatchContext, patches: tuple[PatchKey, ...]) -> _Side:
    """Return the patches that apply to one type of resource on one side. `patched` is the type: clusters, listeners,
    routes or extensions.

    The inbound routes of a sidecar are part of its listeners. Patches for extension configs apply to both sides.
    """
    targets = _APPLY_TO[patched] | (_ROUTES if (patched, context) == ("listeners", "SIDECAR_INBOUND") else frozenset())
    keys = tuple(
        key for key in patches if (patch := configured_patch(db, key)) is not None and _changes(patch, targets, context)
    )
    matches = [patch.match for patch in _configured(db, keys) if patch.match is not None]
    return _Side(
        keys,
        any(match.route_configuration is not None and match.route_configuration.port_number for match in matches),
        any(match.cluster is not None and match.cluster.service for match in matches),
    )


def _changes(patch: EnvoyConfigObjectPatch, targets: frozenset[str], context: str) -> bool:
    matched = patch.match.context if patch.match is not None else "ANY"
    return patch.apply_to in targets and (matched in ("ANY", context) or patch.apply_to == "EXTENSION_CONFIG")


def patch_facet(
    db: Mesh, node_id: str, patches: tuple[PatchKey, ...], patched: str, context: ProxyPatchContext
) -> PatchFacet:
    """Return the facet of a proxy's patches for one type of resource on one side. Not memoised."""
    side = _side(db, patched, context, patches)
    ports = _ports(db, node_id) if side.matches_port and find_proxy(db, node_id).type is NodeType.ROUTER else ()
    hosts = _hosts(db, node_id) if side.matches_service and context == "SIDECAR_INBOUND" else ()
    return PatchFacet(context, side.patches, ports, hosts)


def _ports(db: Mesh, node_id: str) -> tuple[tuple[int, frozenset[int]], ...]:
    """Return pairs of a port that a router listens on and the ports of its servers."""
    ports: dict[int, set[int]] = {}
    for route, keys in merged_gateway(db, gateway_selection_key(db, node_id)).routes:
        servers = (server(db, key) for key in keys)
        numbers = (s.port.number for s in servers if s is not None and s.port is not None)
        ports.setdefault(route.port, set()).update(numbers)
    return tuple((port, frozenset(numbers)) for port, numbers in sorted(ports.items()))


def _hosts(db: Mesh, node_id: str) -> tuple[tuple[int, frozenset[str]], ...]:
    """Return pairs of a port of a sidecar's workload and the hosts of its services."""
    hosts: dict[int, set[str]] = {}
    for target in service_targets(db, node_id):
        hosts.setdefault(target.target_port, set()).add(target.ref.hostname)
    return tuple((port, frozenset(names)) for port, names in sorted(hosts.items()))

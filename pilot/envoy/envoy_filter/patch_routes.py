"""Applies patches to route configurations, their virtual hosts and routes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_limit import Steps, batches
from pilot.envoy.envoy_filter.patch_list import change_list
from pilot.envoy.envoy_filter.patch_match import matches_host, matches_route, matches_routes, names_route
from pilot.envoy.envoy_filter.patch_merge import merge_value
from pilot.lib.protobuf.fault import Violation
from pilot.mesh.model.facets import PatchFacet


def patch_routes(config: Any, patches: Sequence[ParsedPatch], facet: PatchFacet, effects: Effects) -> Steps[None]:
    """Patch a route configuration in place, from the outside inwards. Added virtual hosts are not patched."""
    matching = [patch for patch in patches if matches_routes(patch.match.route_configuration, config.name, facet)]
    yield from patch_configuration(config, matching, effects)
    yield from patch_hosts(config.virtual_hosts, matching, effects)
    add_hosts(config, matching, effects, domains_of(config.virtual_hosts))


def patch_configuration(config: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    """Apply the patches for the route configuration itself, rather than for its virtual hosts or routes."""
    for batch in batches(patches):
        for patch in batch:
            if (
                patch.apply_to == "ROUTE_CONFIGURATION"
                and patch.merges
                and merge_value(config, patch.value, patch, effects)
            ):
                effects.record_applied(patch)
        yield


def patch_hosts(hosts: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    """Patch virtual hosts in place, including their routes."""
    host_patches = [patch for patch in patches if patch.apply_to == "VIRTUAL_HOST"]
    route_patches = [patch for patch in patches if patch.apply_to == "HTTP_ROUTE"]
    for index in range(len(hosts) - 1, -1, -1):
        if (yield from _patch_host(hosts[index], host_patches, effects)):
            matching = [patch for patch in route_patches if matches_host(patch, hosts[index])]
            yield from _patch_host_routes(hosts[index], matching, effects)
        else:
            del hosts[index]
        yield


def adds_host(patch: ParsedPatch) -> bool:
    """Return whether a patch adds a virtual host."""
    return patch.apply_to == "VIRTUAL_HOST" and patch.operation == "ADD"


def domains_of(hosts: Iterable[Any]) -> set[str]:
    """Return the domains of virtual hosts in lower case, as Envoy compares them."""
    return {domain.lower() for host in hosts for domain in host.domains}


def add_hosts(config: Any, patches: Sequence[ParsedPatch], effects: Effects, domains: AbstractSet[str]) -> None:
    """Add the virtual hosts that patches add to a route configuration, whose virtual hosts have `domains`.

    Envoy rejects a route configuration in which a domain is repeated, so virtual hosts that repeat one are omitted.
    """
    used = set(domains)
    for patch in filter(adds_host, patches):
        own = domains_of((patch.value,))
        if repeated := sorted(own & used):
            text = f"another virtual host of {config.name or 'the route configuration'} has the domain {repeated[0]}"
            effects.record_misfit(patch, Violation("repeated-domain", ("domains",), text))
            continue
        used |= own
        config.virtual_hosts.add().CopyFrom(patch.value)
        effects.record_applied(patch)


def _patch_host(host: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[bool]:
    """Patch a virtual host in place, but not its routes. Return False if a patch removes it."""
    for batch in batches(patches):
        for patch in batch:
            if patch.operation == "ADD" or not matches_host(patch, host):
                continue
            if patch.operation == "REMOVE":
                effects.record_applied(patch)
                return False
            if patch.operation == "REPLACE":
                host.CopyFrom(patch.value)
                effects.record_applied(patch)
            elif merge_value(host, patch.value, patch, effects):
                effects.record_applied(patch)
        yield
    return True


def _patch_host_routes(host: Any, patches: Sequence[ParsedPatch], effects: Effects) -> Steps[None]:
    """Patch or remove the existing routes, and then add routes. Routes that patches add are not patched."""
    changes = [patch for patch in patches if patch.merges or patch.operation == "REMOVE"]
    for index in range(len(host.routes) - 1, -1, -1) if changes else ():
        for batch in batches(changes):
            if not _patch_route(host.routes[index], batch, effects):
                del host.routes[index]
                break
            yield
    for patch in patches:
        if not patch.merges and patch.operation != "REMOVE":
            _add_route(host.routes, patch, effects)
            yield  # it was compared with every route


def _patch_route(route: Any, patches: Sequence[ParsedPatch], effects: Effects) -> bool:
    """Patch a route in place. Return False if a patch removes it."""
    for patch in patches:
        if not matches_route(patch, route):
            continue
        if patch.operation == "REMOVE":
            effects.record_applied(patch)
            return False
        if merge_value(route, patch.value, patch, effects):
            effects.record_applied(patch)
    return True


def _add_route(routes: Any, patch: ParsedPatch, effects: Effects) -> None:
    """Add a route. An INSERT_FIRST patch that names another route takes effect only if that route exists."""
    if not names_route(patch):
        change_list(routes, patch, None, effects)
    elif patch.operation != "INSERT_FIRST" or any(matches_route(patch, route) for route in routes):
        change_list(routes, patch, lambda route: matches_route(patch, route), effects)

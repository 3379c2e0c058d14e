"""Piecewise patching of route configurations, compared with patching each as a whole."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from envoy.config.route.v3 import route_components_pb2, route_pb2

from pilot.config.networking.envoy_filter import (
    EnvoyConfigObjectMatch,
    RouteConfigurationMatch,
    RouteMatch,
    VirtualHostMatch,
)
from pilot.config.object import ObjectKey
from pilot.envoy.envoy_filter.parsed_patch import ParsedPatch, patches
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_limit import STEP
from pilot.envoy.envoy_filter.patch_routes import patch_hosts, patch_routes
from pilot.envoy.envoy_filter.patched_groups import PatchedGroupKey, patched, patched_resources
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ROUTE
from pilot.mesh.model.facets import PatchFacet, PatchKey
from testing.edits.random_envoy_filters import API, MESH, TO_API
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

WEB = "web.a.svc.cluster.local"
TO_ALL = "{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {route: {timeout: 7s}}}}"


def host_patch(operation: str, match: str, value: str = "", routes: str = "name: '80'") -> str:
    """Return a patch of a virtual host."""
    match_field = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{{routes}{', vhost: {' + match + '}' if match else ''}}}}}"
    return f"{{applyTo: VIRTUAL_HOST, {match_field}, patch: {{operation: {operation}{', value: {' + value + '}' if value else ''}}}}}"


def configuration_patch(value: str, operation: str = "MERGE") -> str:
    """Return a patch of a route configuration."""
    match = "match: {context: SIDECAR_OUTBOUND, routeConfiguration: {name: '80'}}"
    return f"{{applyTo: ROUTE_CONFIGURATION, {match}, patch: {{operation: {operation}, value: {{{value}}}}}}}"


def routes_patch(operation: str, host: str, value: str = "") -> str:
    """Return a patch of the routes of a virtual host."""
    match = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: {host}}}}}}}"
    return f"{{applyTo: HTTP_ROUTE, {match}, patch: {{operation: {operation}{', value: {' + value + '}' if value else ''}}}}}"


class PatchedMesh:
    """A mesh with a mesh-wide EnvoyFilter and one sidecar per given namespace."""

    def __init__(self, *config_patches: str, namespaces: tuple[str, ...] = ("a",)) -> None:
        self.world = World()
        self.world.apply_objects(*MESH, self.filter(*config_patches))
        self.nodes = [
            self.world.connect(proxy("sidecar", f"one-{index}", namespace, f"10.1.7.{index}", {"app": "one"}))
            for index, namespace in enumerate(namespaces)
        ]

    @staticmethod
    def filter(*config_patches: str) -> Plain:
        return make("EnvoyFilter", "one", f"{{configPatches: [{', '.join(config_patches)}]}}", "istio-system")

    def routes(self, index: int = 0) -> Resource:
        """Return the route configuration of a proxy for port 80."""
        return self.world.resources(self.nodes[index])[ROUTE]["80"]

    def count(self) -> Counter[str]:
        """Count derivation runs from now on."""
        runs: Counter[str] = Counter()
        self.world.mesh.on_run = lambda node: runs.update((str(node.fn),))
        return runs

    def as_a_whole(self) -> tuple[route_pb2.RouteConfiguration, Effects]:
        """Patch the unpatched configuration of the first proxy in one go; return it with the effects of the patches."""
        db = self.world.mesh
        (group,) = (group for group in proxy_plan(db, self.nodes[0]).groups[ROUTE] if group.fn is patched)
        source, facet = group.args
        (base,) = (resource for resource in source.fn(db, *source.args).values() if resource.name == "80")
        whole, effects = parse(base), Effects()
        list(patch_routes(whole, patches(db, facet), facet, effects))
        return whole, effects

    def effects(self) -> tuple[set[object], set[object]]:
        """Return the applied patches and the misfits of the first proxy's port 80."""
        db = self.world.mesh
        (group,) = (group for group in proxy_plan(db, self.nodes[0]).groups[ROUTE] if group.fn is patched)
        source: PatchedGroupKey = group.args[0]
        resources = [
            resource for place, resource in patched_resources(db, source, group.args[1]).items() if place.key == "80"
        ]
        return {key for resource in resources for key in resource.applied}, {
            misfit for resource in resources for misfit in resource.misfits
        }


def parse(resource: Resource) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration.FromString(b"".join(resource.message_pieces))


@pytest.mark.parametrize(
    "config_patches",
    [
        (host_patch("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"),),
        (host_patch("MERGE", f"domainName: '{WEB}'", "request_headers_to_remove: [x]"),),
        (host_patch("MERGE", "", "request_headers_to_remove: [x]"), TO_ALL),
        (host_patch("REMOVE", f"name: '{WEB}:80'"),),
        (host_patch("REMOVE", "name: allow_any"),),
        (host_patch("REMOVE", ""),),
        (
            host_patch("REPLACE", f"name: '{WEB}:80'", "name: x, domains: [x]"),
            host_patch("MERGE", "name: x", "request_headers_to_remove: [x]"),
        ),
        (
            host_patch("MERGE", f"name: '{WEB}:80'", "domains: [new.test]"),
            host_patch("MERGE", "domainName: new.test", "request_headers_to_remove: [x]"),
        ),
        (
            host_patch("MERGE", f"name: '{WEB}:80'", "domains: [new.test]"),
            host_patch("REMOVE", "name: allow_any, domainName: new.test"),
        ),
        (
            host_patch("ADD", "", "name: x, domains: [x]"),
            host_patch("MERGE", "name: x", "request_headers_to_remove: [x]"),
        ),
        (host_patch("MERGE", "name: nobody", "request_headers_to_remove: [x]"),),
        (host_patch("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]", "name: '81'"),),
        (host_patch("MERGE", f"name: '{API}:80'", "require_tls: 99"),),
        (
            configuration_patch("request_headers_to_remove: [x], name: other"),
            routes_patch("MERGE", f"'{API}:80'", "route: {timeout: 7s}"),
        ),
        (
            configuration_patch("virtual_hosts: [{name: x, domains: [x]}]"),
            host_patch("MERGE", "name: x", "request_headers_to_remove: [x]"),
        ),
        (configuration_patch("virtual_hosts: [{name: x, domains: [x]}]", "MERGE_AND_REPLACE_LIST"),),
        (
            routes_patch("INSERT_FIRST", f"'{WEB}:80'", "name: x, match: {prefix: /x}, direct_response: {status: 204}"),
            TO_ALL,
        ),
        (routes_patch("REMOVE", f"'{API}:80'"),),
    ],
)
def test_pieces_equal_the_whole(config_patches: tuple[str, ...]) -> None:
    mesh = PatchedMesh(*config_patches)
    whole, effects = mesh.as_a_whole()
    routes = next(
        resource for name, resource in mesh.world.resources(mesh.nodes[0])[ROUTE].items() if name == whole.name
    )
    assert parse(routes) == whole
    assert mesh.effects() == (set(effects.applied), set(effects.misfits))


def test_unpatched_pieces_are_shared() -> None:
    mesh = PatchedMesh(host_patch("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"), namespaces=("a",))
    bare = PatchedMesh(host_patch("MERGE", "name: nobody", "request_headers_to_remove: [x]"), namespaces=("a",))
    shared = set(mesh.routes().message_pieces) & set(bare.routes().message_pieces)
    assert len(shared) == len(bare.routes().message_pieces) - 1
    assert bare.routes().message_pieces[1] not in shared


def test_shared_piece_is_patched_once() -> None:
    mesh = PatchedMesh(
        host_patch("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"), namespaces=("c", "d", "e")
    )
    runs = mesh.count()
    assert len({mesh.routes(index).encoded for index in range(3)}) == 1
    assert runs["_patched_piece"] == 1


def test_edit_rebuilds_only_its_piece() -> None:
    mesh = PatchedMesh(TO_ALL)
    before = mesh.routes()
    runs = mesh.count()
    mesh.world.apply_objects(
        make("VirtualService", "api", f"{{hosts: [{API}], http: [{{{TO_API}, retries: {{attempts: 1}}}}]}}", "b")
    )
    after = mesh.routes()
    assert runs["_patched_piece"] == 1
    unchanged = [old is new for old, new in zip(before.message_pieces[1:], after.message_pieces[1:], strict=True)]
    assert sorted(unchanged) == [False, *[True] * (len(unchanged) - 1)]


@pytest.mark.parametrize(("name", "remaining"), [("main", []), ("nobody", ["main"])])
def test_only_the_matched_route_is_removed(name: str, remaining: list[str]) -> None:
    match = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: '{API}:80', route: {{name: {name}}}}}}}}}"
    configuration = parse(PatchedMesh(f"{{applyTo: HTTP_ROUTE, {match}, patch: {{operation: REMOVE}}}}").routes())
    routes = {host.name: [route.name for route in host.routes] for host in configuration.virtual_hosts}
    assert routes[f"{API}:80"] == remaining
    assert routes[f"{WEB}:80"] == ["default"]


class CountingName(str):
    """A name that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountingName.comparisons += 1
        return super().__eq__(other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("operation", ["ADD", "INSERT_AFTER", "INSERT_BEFORE", "INSERT_FIRST", "MERGE", "REMOVE"])
def test_patches_that_are_compared_with_many_routes_are_applied_in_steps(operation: str) -> None:
    host_match = VirtualHostMatch(route=RouteMatch(name=CountingName("missing")))
    match = EnvoyConfigObjectMatch(route_configuration=RouteConfigurationMatch(vhost=host_match))
    route = route_components_pb2.Route()
    patch = ParsedPatch(PatchKey(ObjectKey("a", "one"), 0), "HTTP_ROUTE", operation, match, route, "")
    host = route_components_pb2.VirtualHost(routes=[route] * 200)
    CountingName.comparisons = 0
    comparisons = [CountingName.comparisons for _ in patch_hosts([host], [patch] * 100, Effects())]
    assert comparisons[-1] >= 100 * 200
    assert max(later - earlier for earlier, later in itertools.pairwise(comparisons)) <= 3 * 200, "those of a patch"


@pytest.mark.parametrize("apply_to", ["VIRTUAL_HOST", "ROUTE_CONFIGURATION"])
def test_many_patches_for_one_part_are_applied_in_steps(apply_to: str) -> None:
    value = (
        route_components_pb2.VirtualHost(domains=["a"])
        if apply_to == "VIRTUAL_HOST"
        else route_pb2.RouteConfiguration(internal_only_headers=["a"])
    )
    match = EnvoyConfigObjectMatch(route_configuration=RouteConfigurationMatch())
    patch = ParsedPatch(PatchKey(ObjectKey("a", "one"), 0), apply_to, "MERGE", match, value, "")
    config = route_pb2.RouteConfiguration(virtual_hosts=[route_components_pb2.VirtualHost()])
    host = config.virtual_hosts[0]
    lengths = [
        len(host.domains) + len(config.internal_only_headers)
        for _ in patch_routes(config, [patch] * 1000, PatchFacet("SIDECAR_OUTBOUND"), Effects())
    ]
    assert lengths[-1] == 1000
    assert max(later - earlier for earlier, later in itertools.pairwise([0, *lengths])) <= STEP

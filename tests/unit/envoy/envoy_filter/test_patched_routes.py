"""Route configurations are patched piece by piece, and come out as if each had been patched as a whole."""

from __future__ import annotations

from collections import Counter

import pytest
from envoy.config.route.v3 import route_pb2

from pilot.envoy.envoy_filter.parsed_patch import patches
from pilot.envoy.envoy_filter.patch_effects import Effects
from pilot.envoy.envoy_filter.patch_routes import patch_routes
from pilot.envoy.envoy_filter.patched_groups import PatchedGroupKey, patched, patched_resources
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.envoy.resource import Resource
from pilot.lib.xds_types import ROUTE
from testing.edits.random_envoy_filters import API, MESH, TO_API
from testing.mesh.objects import Plain, make
from testing.mesh.world import World, proxy

WEB = "web.a.svc.cluster.local"
TO_ALL = "{applyTo: HTTP_ROUTE, match: {context: SIDECAR_OUTBOUND}, patch: {operation: MERGE, value: {route: {timeout: 7s}}}}"


def of_host(operation: str, match: str, value: str = "", routes: str = "name: '80'") -> str:
    """A patch of a virtual host."""
    found = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{{routes}{', vhost: {' + match + '}' if match else ''}}}}}"
    return f"{{applyTo: VIRTUAL_HOST, {found}, patch: {{operation: {operation}{', value: {' + value + '}' if value else ''}}}}}"


def of_all(value: str, operation: str = "MERGE") -> str:
    """A patch of a route configuration."""
    match = "match: {context: SIDECAR_OUTBOUND, routeConfiguration: {name: '80'}}"
    return f"{{applyTo: ROUTE_CONFIGURATION, {match}, patch: {{operation: {operation}, value: {{{value}}}}}}}"


def of_routes(operation: str, host: str, value: str = "") -> str:
    """A patch of the routes of a virtual host."""
    match = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: {host}}}}}}}"
    return f"{{applyTo: HTTP_ROUTE, {match}, patch: {{operation: {operation}{', value: {' + value + '}' if value else ''}}}}}"


class Patching:
    """The mesh of two namespaces, with an EnvoyFilter for all proxies, and a sidecar in each of some namespaces."""

    def __init__(self, *given: str, namespaces: tuple[str, ...] = ("a",)) -> None:
        self.world = World()
        self.world.apply_objects(*MESH, self.filter(*given))
        self.nodes = [
            self.world.connect(proxy("sidecar", f"one-{at}", namespace, f"10.1.7.{at}", {"app": "one"}))
            for at, namespace in enumerate(namespaces)
        ]

    @staticmethod
    def filter(*given: str) -> Plain:
        return make("EnvoyFilter", "one", f"{{configPatches: [{', '.join(given)}]}}", "istio-system")

    def routes(self, at: int = 0) -> Resource:
        """What a proxy has on port 80."""
        return self.world.resources(self.nodes[at])[ROUTE]["80"]

    def count(self) -> Counter[str]:
        """Counts the derivations that run from now on."""
        ran: Counter[str] = Counter()
        self.world.mesh.on_run = lambda node: ran.update((str(node.fn),))
        return ran

    def as_a_whole(self) -> tuple[route_pb2.RouteConfiguration, Effects]:
        """The configuration of the first proxy, built without patches and then patched in one go; and what became of the patches."""
        db = self.world.mesh
        (group,) = (group for group in proxy_plan(db, self.nodes[0]).groups[ROUTE] if group.fn is patched)
        source, facet = group.args
        (built,) = (resource for resource in source.fn(db, *source.args).values() if resource.name == "80")
        whole, effects = parsed(built), Effects()
        patch_routes(whole, patches(db, facet), facet, effects)
        return whole, effects

    def effects(self) -> tuple[set[object], set[object]]:
        """What became of the patches of the first proxy's port 80."""
        db = self.world.mesh
        (group,) = (group for group in proxy_plan(db, self.nodes[0]).groups[ROUTE] if group.fn is patched)
        source: PatchedGroupKey = group.args[0]
        found = [one for at, one in patched_resources(db, source, group.args[1]).items() if at.key == "80"]
        return {key for one in found for key in one.applied}, {misfit for one in found for misfit in one.misfits}


def parsed(resource: Resource) -> route_pb2.RouteConfiguration:
    return route_pb2.RouteConfiguration.FromString(b"".join(resource.message_pieces))


@pytest.mark.parametrize(
    "given",
    [
        (of_host("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"),),
        (of_host("MERGE", f"domainName: '{WEB}'", "request_headers_to_remove: [x]"),),
        (of_host("MERGE", "", "request_headers_to_remove: [x]"), TO_ALL),
        (of_host("REMOVE", f"name: '{WEB}:80'"),),
        (of_host("REMOVE", "name: allow_any"),),
        (of_host("REMOVE", ""),),
        (
            of_host("REPLACE", f"name: '{WEB}:80'", "name: x, domains: [x]"),
            of_host("MERGE", "name: x", "request_headers_to_remove: [x]"),
        ),
        (
            of_host("MERGE", f"name: '{WEB}:80'", "domains: [new.test]"),
            of_host("MERGE", "domainName: new.test", "request_headers_to_remove: [x]"),
        ),
        (
            of_host("MERGE", f"name: '{WEB}:80'", "domains: [new.test]"),
            of_host("REMOVE", "name: allow_any, domainName: new.test"),
        ),
        (of_host("ADD", "", "name: x, domains: [x]"), of_host("MERGE", "name: x", "request_headers_to_remove: [x]")),
        (of_host("MERGE", "name: nobody", "request_headers_to_remove: [x]"),),
        (of_host("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]", "name: '81'"),),
        (of_host("MERGE", f"name: '{API}:80'", "require_tls: 99"),),
        (
            of_all("request_headers_to_remove: [x], name: other"),
            of_routes("MERGE", f"'{API}:80'", "route: {timeout: 7s}"),
        ),
        (
            of_all("virtual_hosts: [{name: x, domains: [x]}]"),
            of_host("MERGE", "name: x", "request_headers_to_remove: [x]"),
        ),
        (of_all("virtual_hosts: [{name: x, domains: [x]}]", "MERGE_AND_REPLACE_LIST"),),
        (
            of_routes("INSERT_FIRST", f"'{WEB}:80'", "name: x, match: {prefix: /x}, direct_response: {status: 204}"),
            TO_ALL,
        ),
        (of_routes("REMOVE", f"'{API}:80'"),),
    ],
)
def test_pieces_come_out_as_the_whole_does(given: tuple[str, ...]) -> None:
    found = Patching(*given)
    whole, effects = found.as_a_whole()
    routes = next(
        resource for name, resource in found.world.resources(found.nodes[0])[ROUTE].items() if name == whole.name
    )
    assert parsed(routes) == whole
    assert found.effects() == (set(effects.applied), set(effects.misfits))


def test_what_a_patch_does_not_change_is_shared_byte_by_byte() -> None:
    found = Patching(of_host("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"), namespaces=("a",))
    bare = Patching(of_host("MERGE", "name: nobody", "request_headers_to_remove: [x]"), namespaces=("a",))
    kept = set(found.routes().message_pieces) & set(bare.routes().message_pieces)
    assert len(kept) == len(bare.routes().message_pieces) - 1
    assert bare.routes().message_pieces[1] not in kept


def test_a_piece_that_several_configurations_have_is_patched_once() -> None:
    found = Patching(
        of_host("MERGE", f"name: '{API}:80'", "request_headers_to_remove: [x]"), namespaces=("c", "d", "e")
    )
    ran = found.count()
    assert len({found.routes(at).encoded for at in range(3)}) == 1
    assert ran["_patched_piece"] == 1


def test_an_edit_has_the_other_pieces_as_they_were() -> None:
    found = Patching(TO_ALL)
    before = found.routes()
    ran = found.count()
    found.world.apply_objects(
        make("VirtualService", "api", f"{{hosts: [{API}], http: [{{{TO_API}, retries: {{attempts: 1}}}}]}}", "b")
    )
    after = found.routes()
    assert ran["_patched_piece"] == 1
    same = [one is other for one, other in zip(before.message_pieces[1:], after.message_pieces[1:], strict=True)]
    assert sorted(same) == [False, *[True] * (len(same) - 1)]


@pytest.mark.parametrize(("name", "left"), [("main", []), ("nobody", ["main"])])
def test_a_route_that_a_patch_removes_is_gone_and_no_other(name: str, left: list[str]) -> None:
    match = f"match: {{context: SIDECAR_OUTBOUND, routeConfiguration: {{vhost: {{name: '{API}:80', route: {{name: {name}}}}}}}}}"
    found = parsed(Patching(f"{{applyTo: HTTP_ROUTE, {match}, patch: {{operation: REMOVE}}}}").routes())
    routes = {host.name: [route.name for route in host.routes] for host in found.virtual_hosts}
    assert routes[f"{API}:80"] == left
    assert routes[f"{WEB}:80"] == ["default"]

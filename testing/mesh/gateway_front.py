"""A router with many HTTPRoutes, whose statuses and problems are watched as in the real process."""

from __future__ import annotations

from typing import Any

from pilot.derive import Node
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.long_tuples import changed_items
from pilot.lib.xds_types import ROUTE
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.status.object_status import object_status, objects_with_status
from testing.edits.gateway_objects import gateway_object
from testing.mesh.objects import make
from testing.mesh.world import Rows, World, proxy, rows_of

GATEWAY = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], listeners: [{name: http, port: 80, protocol: HTTP}]"


def route(number: int, path: str = "/", host: str = "") -> Rows:
    """Return an HTTPRoute with a host, or with one of its own."""
    rules = f"rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    hosts = f"hostnames: [{host or f'h{number}.com'}]"
    return rows_of([gateway_object("HTTPRoute", f"r{number}", f"parentRefs: [{{name: gw}}], {hosts}, {rules}")])


class GatewayFront:
    """A router with a Gateway.

    `groups` are its route configurations. Everything that is watched is refreshed after each commit.
    """

    def __init__(self, rows: Rows) -> None:
        self.world = World()
        self.mesh = self.world.mesh
        self.world.set(
            rows_of(
                (
                    make("Service", "web", "{clusterIP: 10.96.0.1, ports: [{name: http, port: 80}]}", "edge"),
                    make(
                        "Service",
                        "front",
                        "{clusterIP: 10.96.0.2, selector: {app: f}, ports: [{name: http, port: 80}]}",
                        "edge",
                    ),
                    make("Pod", "f-0", "{}", "edge", labels="{app: f}"),
                    gateway_object("Gateway", "gw", GATEWAY),
                )
            )
        )
        node_id = self.world.connect(proxy("router", "f-0", "edge", "10.1.0.1", {"app": "f"}))
        self.groups = [self.mesh.watch(group.fn, *group.args) for group in proxy_plan(self.mesh, node_id).groups[ROUTE]]
        self._status_objects = self.mesh.watch(objects_with_status)
        self._keys = {self.mesh.watch(check.keys): check for check in CHECKS}
        self._listed: dict[Node, tuple[Any, ...]] = {}
        self.set(rows)

    def set(self, rows: Rows) -> None:
        """Commit rows, and refresh the affected nodes."""
        affected = self.mesh.commit((self.mesh.tables[table], key, row) for (table, key), row in rows.items())
        for node in affected:
            self.mesh.refresh(node)
        for node in affected:
            self._watch_items(node)

    def _watch_items(self, node: Node) -> None:
        if node is not self._status_objects and node not in self._keys:
            return
        derivation = object_status if node is self._status_objects else self._keys[node].problems
        _, new = changed_items(self._listed.get(node, ()), node.value)
        self._listed[node] = node.value
        for key in new:
            self.mesh.watch(derivation, key)

    def pieces(self) -> list[bytes]:
        """Return the byte pieces of a response with all route configurations."""
        return [piece for group in self.groups for resource in group.value.values() for piece in resource.pieces]

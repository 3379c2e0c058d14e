"""A router in front of many HTTPRoutes, with the statuses and problems of all of them watched as the process watches them."""

from __future__ import annotations

from pilot.derive import Node
from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.xds_types import ROUTE
from pilot.mesh.analysis.listed import CHECKS
from pilot.mesh.status.object_status import object_status, objects_with_status
from testing.edits.gateway_objects import gateway_object
from testing.mesh.objects import make
from testing.mesh.world import Rows, World, proxy, rows_of

GATEWAY = "gatewayClassName: istio, addresses: [{type: Hostname, value: front}], listeners: [{name: http, port: 80, protocol: HTTP}]"


def route(number: int, path: str = "/") -> Rows:
    """Return an HTTPRoute with a host of its own."""
    rules = f"rules: [{{matches: [{{path: {{value: {path}}}}}], backendRefs: [{{name: web, port: 80}}]}}]"
    return rows_of(
        [gateway_object("HTTPRoute", f"r{number}", f"parentRefs: [{{name: gw}}], hostnames: [h{number}.com], {rules}")]
    )


class Front:
    """A router with a Gateway. `groups` are its route configurations; all that is watched is brought up to date after every commit."""

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
        self._listed = self.mesh.watch(objects_with_status)
        self._keys = {self.mesh.watch(check.keys): check for check in CHECKS}
        self._seen: set[object] = set()
        self.set(rows)

    def set(self, rows: Rows) -> None:
        """Commits rows, and brings up to date what they reached."""
        for node in (
            hit := self.mesh.commit((self.mesh.tables[table], key, row) for (table, key), row in rows.items())
        ):
            self.mesh.refresh(node)
        for node in hit:
            self._watch_listed(node)

    def _watch_listed(self, node: Node) -> None:
        if node is not self._listed and node not in self._keys:
            return
        watched = object_status if node is self._listed else self._keys[node].problems
        for key in node.value:
            if (watched, key) not in self._seen:
                self._seen.add((watched, key))
                self.mesh.watch(watched, key)

    def pieces(self) -> list[bytes]:
        """Return what an answer with all route configurations is put together from."""
        return [piece for group in self.groups for resource in group.value.values() for piece in resource.pieces]

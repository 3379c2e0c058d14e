"""EnvoyFilters for random edits of a mesh."""

from __future__ import annotations

from testing.edits.slot import Slot, one_of
from testing.mesh.objects import make


def filter_spec(*patches: str, more: str = "") -> str:
    """Return the spec of an EnvoyFilter."""
    return f"{{{more}configPatches: [{', '.join(patches)}]}}"


def patch_spec(apply_to: str, operation: str, value: str = "", match: str = "", context: str = "ANY") -> str:
    """Return a patch. `match` are its conditions besides the context."""
    field = f", value: {{{value}}}" if value else ""
    return f"{{applyTo: {apply_to}, match: {{context: {context}{', ' + match if match else ''}}}, patch: {{operation: {operation}{field}}}}}"


ROUTED = "routeConfiguration: {portNumber: 80}"
DIRECT = "match: {prefix: /added}, direct_response: {status: 204}"
ON_MANAGER = "listener: {filterChain: {filter: {name: envoy.filters.network.http_connection_manager}}}"
CORS = "name: added.cors, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.cors.v3.Cors}"
WEATHER = "name: weather, type: STATIC, connect_timeout: 1s, load_assignment: {cluster_name: weather}"
DELAY = "typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.http.fault.v3.HTTPFault, max_active_faults: 3}"
FILTERS: list[Slot] = [
    one_of(
        *(
            make("EnvoyFilter", "all", spec, "istio-system")
            for spec in (
                filter_spec(
                    patch_spec("CLUSTER", "MERGE", "connect_timeout: 3s"),
                    patch_spec("ROUTE_CONFIGURATION", "MERGE", "request_headers_to_remove: [x-old]"),
                ),
                filter_spec(patch_spec("HTTP_FILTER", "INSERT_FIRST", CORS, ON_MANAGER), more="priority: 5, "),
                filter_spec(
                    patch_spec("LISTENER", "MERGE", "tcp_backlog_size: 7", "proxy: {metadata: {HTTP10: '1'}}"),
                    patch_spec("CLUSTER", "ADD", WEATHER),
                ),
                filter_spec(
                    patch_spec("EXTENSION_CONFIG", "ADD", f"name: slow, {DELAY}"),
                    more="targetRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: g}], ",
                ),
            )
        )
    ),
    one_of(
        *(
            make("EnvoyFilter", "own", spec, "a")
            for spec in (
                filter_spec(
                    patch_spec("CLUSTER", "MERGE", "lb_policy: RANDOM", "cluster: {portNumber: 80}"),
                    patch_spec("LISTENER", "REMOVE", "", "listener: {portNumber: 90}"),
                ),
                filter_spec(
                    patch_spec(
                        "VIRTUAL_HOST", "ADD", f"name: added, domains: [added.x], routes: [{{{DIRECT}}}]", ROUTED
                    ),
                    more="workloadSelector: {labels: {app: web}}, ",
                ),
                filter_spec(
                    patch_spec("HTTP_ROUTE", "INSERT_FIRST", DIRECT, ROUTED),
                    patch_spec("HTTP_ROUTE", "ADD", DIRECT, "", "SIDECAR_INBOUND"),
                ),
                filter_spec(
                    patch_spec("EXTENSION_CONFIG", "ADD", f"name: slow, {DELAY}"),
                    patch_spec("FILTER_CHAIN", "MERGE", "transport_socket_connect_timeout: 9s"),
                ),
                filter_spec(
                    patch_spec("CLUSTER", "MERGE", "nobody_knows: 1"),
                    patch_spec("CLUSTER", "REMOVE", "", "cluster: {service: x.example.com}"),
                    more="priority: -1, ",
                ),
            )
        )
    ),
    one_of(
        *(
            make("EnvoyFilter", "edge", spec, "edge")
            for spec in (
                filter_spec(
                    patch_spec(
                        "HTTP_ROUTE",
                        "MERGE",
                        "route: {timeout: 13s}",
                        "routeConfiguration: {vhost: {route: {action: ROUTE}}}",
                        "GATEWAY",
                    )
                ),
                filter_spec(
                    patch_spec(
                        "VIRTUAL_HOST", "MERGE_AND_REPLACE_LIST", "domains: [only.example.com]", ROUTED, "GATEWAY"
                    )
                ),
            )
        )
    ),
]

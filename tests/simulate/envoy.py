"""A simulation of Envoy's routing of a request through listeners, filter chains, virtual hosts and routes.

Rules: https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch
and https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/route/v3/route_components.proto
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.config.route.v3 import route_components_pb2, route_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from google.protobuf import any_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import LISTENER, ROUTE
from testing.mesh.traffic import Request

HTTP = "envoy.filters.network.http_connection_manager"
TCP = "envoy.filters.network.tcp_proxy"


class Outcome(NamedTuple):
    """The outcome of a request.

    destination: "no listener", "no chain", "404", "redirect", "direct", a cluster, or weighted clusters with their weights.
    terminated: Whether the listener terminated TLS.
    """

    destination: str
    detail: str = ""
    terminated: bool = False


class Envoy:
    """The listeners and routes of a proxy."""

    def __init__(self, resources: Mapping[str, Mapping[str, Resource]]) -> None:
        self.listeners = [_unpack(r, listener_pb2.Listener) for r in resources.get(LISTENER, {}).values()]
        self.routes = {name: _unpack(r, route_pb2.RouteConfiguration) for name, r in resources.get(ROUTE, {}).items()}

    def send(self, request: Request, address: str = "0.0.0.0") -> Outcome:
        return self.trace(request, address)[0]

    def trace(self, request: Request, address: str = "0.0.0.0") -> tuple[Outcome, route_components_pb2.Route | None]:
        """Return the outcome of a request, and its route."""
        listener = self._listener(request.port, address)
        if listener is None:
            return Outcome("no listener"), None
        chain = _chain(listener, request)
        if chain is None:
            return Outcome("no chain"), None
        terminated = chain.HasField("transport_socket")
        last = chain.filters[-1]
        if last.name == TCP:
            proxy = tcp_proxy_pb2.TcpProxy.FromString(last.typed_config.value)
            return Outcome(proxy.cluster or _weighted(proxy.weighted_clusters.clusters), "tcp", terminated), None
        assert last.name == HTTP, last.name
        manager = http_connection_manager_pb2.HttpConnectionManager.FromString(last.typed_config.value)
        routes = self.routes.get(manager.rds.route_config_name) if manager.HasField("rds") else manager.route_config
        return (
            _route(routes, request, terminated)
            if routes is not None
            else (Outcome("404", "no routes", terminated), None)
        )

    def _listener(self, port: int, address: str) -> listener_pb2.Listener | None:
        by_address = {
            (x.address.socket_address.address, x.address.socket_address.port_value): x
            for x in self.listeners
            if not x.HasField("udp_listener_config")
        }
        return by_address.get((address, port)) or by_address.get(("0.0.0.0", port))


def _unpack(resource: Resource, kind: Any) -> Any:
    return kind.FromString(any_pb2.Any.FromString(resource.any).value)


# -- filter chains ---------------------------------------------------------------------------------------------------------


def _chain(listener: listener_pb2.Listener, request: Request) -> listener_components_pb2.FilterChain | None:
    """Return the chain with the closest server name, and with the protocol of the handshake if there is one."""
    matches = [c for c in listener.filter_chains if _names_match(c.filter_chain_match.server_names, request.sni)]
    if matches:
        closest = min(_name_rank(c.filter_chain_match.server_names, request.sni) for c in matches)
        matches = [c for c in matches if _name_rank(c.filter_chain_match.server_names, request.sni) == closest]
    with_protocol = [c for c in matches if request.alpn in c.filter_chain_match.application_protocols]
    without_protocol = [c for c in matches if not c.filter_chain_match.application_protocols]
    candidates = with_protocol or without_protocol
    assert len(candidates) <= 1, "Envoy rejects chains with equal conditions"
    return candidates[0] if candidates else None


def _names_match(names: Iterable[str], sni: str | None) -> bool:
    names = list(names)
    return not names or (sni is not None and any(_name_matches(n, sni) for n in names))


def _name_matches(name: str, sni: str) -> bool:
    return name == sni or (name.startswith("*.") and sni.endswith(name[1:]))


def _name_rank(names: Iterable[str], sni: str | None) -> int:
    lengths = [len(n) + 1000 * (n == sni) for n in names if sni is not None and _name_matches(n, sni)]
    return -max(lengths, default=0)


# -- routes ----------------------------------------------------------------------------------------------------------------


def _route(
    routes: route_pb2.RouteConfiguration, request: Request, terminated: bool
) -> tuple[Outcome, route_components_pb2.Route | None]:
    host = request.host.partition(":")[0] if routes.ignore_port_in_host_matching else request.host
    virtual = _virtual_host(routes.virtual_hosts, host.lower())
    if virtual is None:
        return Outcome("404", "no virtual host", terminated), None
    if virtual.require_tls and not terminated:
        return Outcome("redirect", f"https://{host}{request.path}"), None
    for route in virtual.routes:
        if _matches(route.match, request, host):
            return _action(route, terminated), route
    return Outcome("404", "no route", terminated), None


def _virtual_host(
    hosts: Iterable[route_components_pb2.VirtualHost], host: str
) -> route_components_pb2.VirtualHost | None:
    """Return the virtual host of an exact domain, else of the longest `*suffix`, the longest `prefix*`, or `*`."""
    ranked: list[tuple[int, int, route_components_pb2.VirtualHost]] = []
    for virtual in hosts:
        for domain in virtual.domains:
            if domain == host:
                ranked.append((0, 0, virtual))
            elif domain == "*":
                ranked.append((3, 0, virtual))
            elif domain.startswith("*") and host.endswith(domain[1:]) and len(host) > len(domain) - 1:
                ranked.append((1, -len(domain), virtual))
            elif domain.endswith("*") and host.startswith(domain[:-1]):
                ranked.append((2, -len(domain), virtual))
    return min(ranked, key=lambda r: r[:2])[2] if ranked else None


def _matches(match: route_components_pb2.RouteMatch, request: Request, host: str) -> bool:
    path, _, query = request.path.partition("?")
    headers = {":method": request.method, ":authority": host, ":path": request.path, **request.headers}
    if match.dynamic_metadata or not _path_matches(match, path):
        return False
    parameters = dict(p.partition("=")[::2] for p in query.split("&") if p)
    return all(_header_matches(h, headers) for h in match.headers) and all(
        _parameter_matches(q, parameters) for q in match.query_parameters
    )


def _path_matches(match: route_components_pb2.RouteMatch, path: str) -> bool:
    kind = match.WhichOneof("path_specifier")
    insensitive = match.HasField("case_sensitive") and not match.case_sensitive.value
    pattern = getattr(match, kind)
    if kind == "safe_regex":
        return re.fullmatch(pattern.regex, path) is not None
    if insensitive:
        path, pattern = path.lower(), pattern.lower()
    if kind == "path":
        return bool(path == pattern)
    if kind == "path_separated_prefix":
        return bool(path == pattern or path.startswith(pattern.rstrip("/") + "/"))
    assert kind == "prefix", kind
    return bool(path.startswith(pattern))


def _header_matches(matcher: route_components_pb2.HeaderMatcher, headers: Mapping[str, str]) -> bool:
    value = headers.get(matcher.name)
    kind = matcher.WhichOneof("header_match_specifier")
    if kind == "present_match":
        is_match = (value is not None) == matcher.present_match
    else:
        assert kind == "string_match", kind
        is_match = value is not None and _text_matches(matcher.string_match, value)
    return is_match != matcher.invert_match


def _parameter_matches(matcher: route_components_pb2.QueryParameterMatcher, parameters: Mapping[str, str]) -> bool:
    value = parameters.get(matcher.name)
    if matcher.WhichOneof("query_parameter_match_specifier") == "present_match":
        return (value is not None) == matcher.present_match
    return value is not None and _text_matches(matcher.string_match, value)


def _text_matches(matcher: Any, value: str) -> bool:
    kind = matcher.WhichOneof("match_pattern")
    pattern = getattr(matcher, kind)
    if kind == "safe_regex":
        return re.fullmatch(pattern.regex, value) is not None
    if matcher.ignore_case:
        pattern, value = pattern.lower(), value.lower()
    checks = {
        "exact": value == pattern,
        "prefix": value.startswith(pattern),
        "suffix": value.endswith(pattern),
        "contains": pattern in value,
    }
    return checks[kind]


def _action(route: route_components_pb2.Route, terminated: bool) -> Outcome:
    kind = route.WhichOneof("action")
    if kind == "redirect":
        return Outcome("redirect", route.redirect.path_redirect or route.redirect.host_redirect, terminated)
    if kind == "direct_response":
        return Outcome("direct", str(route.direct_response.status), terminated)
    assert kind == "route", kind
    return Outcome(route.route.cluster or _weighted(route.route.weighted_clusters.clusters), "http", terminated)


def _weighted(clusters: Iterable[Any]) -> str:
    return ", ".join(f"{getattr(c.weight, 'value', c.weight)}% {c.name}" for c in clusters)

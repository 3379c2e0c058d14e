"""A simulation of Envoy's choice of listener and filter chain for a captured connection.

Conditions of a chain are evaluated in a fixed order, and each keeps only the best matches:
https://www.envoyproxy.io/docs/envoy/latest/api-v3/config/listener/v3/listener_components.proto#config-listener-v3-filterchainmatch
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from envoy.config.listener.v3 import listener_components_pb2, listener_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2
from envoy.extensions.filters.network.tcp_proxy.v3 import tcp_proxy_pb2
from google.protobuf import any_pb2

from pilot.envoy.resource import Resource
from pilot.lib.xds_types import LISTENER

HTTP, TCP = "envoy.filters.network.http_connection_manager", "envoy.filters.network.tcp_proxy"
TLS_INSPECTOR, HTTP_INSPECTOR = "envoy.filters.listener.tls_inspector", "envoy.filters.listener.http_inspector"
Chain: TypeAlias = listener_components_pb2.FilterChain


class Connection(NamedTuple):
    """A connection. `protocol` is that of its first bytes: "http", "tls" or other. `sni` and `alpn` are from its TLS handshake."""

    ip: str
    port: int
    protocol: str = "bytes"
    sni: str = ""
    alpn: tuple[str, ...] = ()


class Sidecar:
    """The listeners of a sidecar."""

    def __init__(self, resources: Mapping[str, Mapping[str, Resource]]) -> None:
        listeners = (
            listener_pb2.Listener.FromString(any_pb2.Any.FromString(r.any).value) for r in resources[LISTENER].values()
        )
        self.listeners = {x.name: x for x in listeners}

    def send(self, connection: Connection) -> str:
        """Return the destination of an outbound connection, by the listener of its address, its port, or the capturing one."""
        for name in (f"{connection.ip}_{connection.port}", f"0.0.0.0_{connection.port}", "virtualOutbound"):
            if name in self.listeners:
                return select_destination(self.listeners[name], connection)
        return "refused"

    def receive(self, connection: Connection) -> str:
        """Return the destination of an inbound connection."""
        return select_destination(self.listeners["virtualInbound"], connection)


def select_destination(listener: listener_pb2.Listener, connection: Connection) -> str:
    """Return the destination that the listener selects: a cluster, "http ROUTES" or "closed", after "tls " if TLS is terminated."""
    transport, protocols, sni = _inspect(listener, connection)
    chains = _best(listener.filter_chains, lambda m: _exact(m.destination_port.value, connection.port))
    chains = _best(chains, lambda m: _prefix(m.prefix_ranges, connection.ip))
    chains = _best(chains, lambda m: _name(m.server_names, sni))
    chains = _best(chains, lambda m: _exact(m.transport_protocol, transport))
    chains = _best(chains, lambda m: _any(m.application_protocols, protocols))
    assert len(chains) <= 1, "Envoy rejects chains with equal conditions"
    chain = chains[0] if chains else listener.default_filter_chain
    return _end(chain) if chain.filters else "closed"


def _inspect(listener: listener_pb2.Listener, connection: Connection) -> tuple[str, tuple[str, ...], str]:
    """Return the protocols and SNI that the inspectors detect, if they are enabled for the port."""
    enabled = {f.name for f in listener.listener_filters if not _disabled(f.filter_disabled, connection.port)}
    if connection.protocol == "tls" and TLS_INSPECTOR in enabled:
        return "tls", connection.alpn, connection.sni
    detected = connection.protocol == "http" and HTTP_INSPECTOR in enabled
    return "raw_buffer", ("http/1.1",) if detected else (), ""


def _disabled(predicate: listener_components_pb2.ListenerFilterChainMatchPredicate, port: int) -> bool:
    kind = predicate.WhichOneof("rule")
    if kind is None:
        return False
    if kind == "not_match":
        return not _disabled(predicate.not_match, port)
    if kind == "or_match":
        return any(_disabled(p, port) for p in predicate.or_match.rules)
    assert kind == "destination_port_range", kind
    return bool(predicate.destination_port_range.start <= port < predicate.destination_port_range.end)


def _best(chains: Iterable[Chain], rank: Callable[[Any], int | None]) -> list[Chain]:
    """Return the chains that match best. A rank of None means no match, and 0 no condition."""
    ranked = [(r, c) for c in chains if (r := rank(c.filter_chain_match)) is not None]
    best = max((r for r, _ in ranked), default=0)
    return [c for r, c in ranked if r == best]


def _exact(condition: Any, value: Any) -> int | None:
    return 0 if not condition else 1 if condition == value else None


def _any(condition: Any, values: tuple[str, ...]) -> int | None:
    """Rank by the client's preference."""
    return 0 if not condition else next((len(values) - i for i, h in enumerate(values) if h in condition), None)


def _prefix(ranges: Any, ip: str) -> int | None:
    networks = [ipaddress.ip_network(f"{r.address_prefix}/{r.prefix_len.value}", strict=False) for r in ranges]
    lengths = [n.prefixlen + 1 for n in networks if ipaddress.ip_address(ip) in n]
    return 0 if not networks else max(lengths, default=None)


def _name(names: Any, sni: str) -> int | None:
    ranks = [1000 if n == sni else len(n) for n in names if n == sni or (n.startswith("*.") and sni.endswith(n[1:]))]
    return 0 if not names else max(ranks, default=None)


def _end(chain: Chain) -> str:
    terminated = "tls " if chain.HasField("transport_socket") else ""
    last = chain.filters[-1]
    if last.name == HTTP:
        manager = http_connection_manager_pb2.HttpConnectionManager.FromString(last.typed_config.value)
        return f"{terminated}http {manager.rds.route_config_name or manager.route_config.name}"
    assert last.name == TCP, last.name
    return terminated + str(tcp_proxy_pb2.TcpProxy.FromString(last.typed_config.value).cluster)

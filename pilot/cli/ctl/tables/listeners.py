"""Listeners: ports, filter chain matches and destinations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters, socket_of
from pilot.cli.ctl.tables.routes import short

FILTERS = ("address", "port", "name")
HEAD = ("ADDRESSES", "PORT", "MATCH", "DESTINATION", "NAME")


def select(listeners: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the listeners that the filters admit."""
    return [
        listener
        for listener in listeners
        if filters.name in ("", listener["name"])
        and any(
            filters.address in ("", host) and filters.port in (0, port)
            for host, port in map(socket_of, _addresses(listener))
        )
    ]


def rows(listeners: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each filter chain, sorted by port and address. A listener's default chain is its last."""
    table_rows: list[tuple[str, ...]] = []
    for listener in sorted(listeners, key=_order):
        addresses = [socket_of(address) for address in _addresses(listener)]
        bound, port = ", ".join(host for host, _ in addresses), str(addresses[0][1] or "-")
        chains = [
            *listener.get("filterChains", ()),
            *([listener["defaultFilterChain"]] if "defaultFilterChain" in listener else []),
        ]
        table_rows += [
            (bound, port, _match(chain.get("filterChainMatch", {})), _destination(chain), listener["name"])
            for chain in chains
        ]
    return table_rows


def _addresses(listener: dict[str, Any]) -> list[dict[str, Any]]:
    return [listener.get("address", {}), *(more["address"] for more in listener.get("additionalAddresses", ()))]


def _order(listener: dict[str, Any]) -> tuple[int, str]:
    return listener.get("address", {}).get("socketAddress", {}).get("portValue", 0), listener["name"]


def _match(match: dict[str, Any]) -> str:
    parts = {
        "port": str(match.get("destinationPort", "")),
        "address": ", ".join(_cidr(prefix) for prefix in match.get("prefixRanges", ())),
        "SNI": ", ".join(match.get("serverNames", ())),
        "transport": match.get("transportProtocol", ""),
        "ALPN": ",".join(match.get("applicationProtocols", ())),
        "source": ", ".join(_cidr(prefix) for prefix in match.get("sourcePrefixRanges", ())),
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items() if value) or "all"


def _cidr(prefix: dict[str, Any]) -> str:
    start, bits = str(prefix["addressPrefix"]), prefix.get("prefixLen", 0)
    return start if bits == (128 if ":" in start else 32) else f"{start}/{bits}"


def _destination(chain: dict[str, Any]) -> str:
    for config in (network_filter.get("typedConfig", {}) for network_filter in chain.get("filters", ())):
        kind = config.get("@type", "").rpartition(".")[2]
        if kind == "HttpConnectionManager":
            return _http(config)
        if kind == "TcpProxy":
            weighted = config.get("weightedClusters", {}).get("clusters")
            return (
                ", ".join(f"{short(c['name'])} {c.get('weight', 0)}" for c in weighted)
                if weighted
                else short(config.get("cluster", "-"))
            )
    return ", ".join(network_filter["name"] for network_filter in chain.get("filters", ())) or "-"


def _http(manager: dict[str, Any]) -> str:
    if name := manager.get("rds", {}).get("routeConfigName"):
        return f"route {name}"
    clusters = {
        short(route["route"]["cluster"])
        for host in manager.get("routeConfig", {}).get("virtualHosts", ())
        for route in host.get("routes", ())
        if "cluster" in route.get("route", {})
    }
    return f"HTTP to {', '.join(sorted(clusters))}" if clusters else "HTTP"

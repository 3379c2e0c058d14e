"""Routes: the matches and destinations of requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters
from pilot.cli.ctl.tables.source import config_object
from pilot.envoy.names import parse_cluster

FILTERS = ("name",)
HEAD = ("NAME", "VHOST NAME", "DOMAINS", "MATCH", "DESTINATION", "VIRTUAL SERVICE")
_SHOWN_DOMAINS = 2
_VALUE_MATCHES = {"exact": "=", "prefix": "=^", "suffix": "=$", "contains": "=~", "safeRegex": "=~"}


def select(configurations: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the route configuration with the name, or all of them."""
    return [configuration for configuration in configurations if filters.name in ("", configuration["name"])]


def rows(configurations: Iterable[dict[str, Any]]) -> list[tuple[str, ...]]:
    """Return a row for each route, sorted by route configuration. A virtual host without routes has one row."""
    return [
        (configuration["name"], host["name"], _domains(host.get("domains", [])), *_route(route))
        for configuration in sorted(configurations, key=lambda c: (_number(c["name"]), str(c["name"])))
        for host in configuration.get("virtualHosts", ())
        for route in host.get("routes") or [{}]
    ]


def _number(name: str) -> int:
    return int(name) if name.isdecimal() else 1 << 16


def _domains(domains: list[str]) -> str:
    shown = ", ".join(domains[:_SHOWN_DOMAINS])
    return shown + (f" + {len(domains) - _SHOWN_DOMAINS} more" if len(domains) > _SHOWN_DOMAINS else "")


def _route(route: dict[str, Any]) -> tuple[str, str, str]:
    return (
        (_match(route["match"]), _destination(route), config_object(route, "virtual-service"))
        if route
        else ("-", "404", "")
    )


def _match(match: dict[str, Any]) -> str:
    parts = [_path(match)]
    parts += [_named("", header["name"].lstrip(":"), header) for header in match.get("headers", ())]
    parts += [_named("?", parameter["name"], parameter) for parameter in match.get("queryParameters", ())]
    return " ".join(parts)


def _path(match: dict[str, Any]) -> str:
    if "path" in match:
        return str(match["path"])
    if "safeRegex" in match:
        return f"~{match['safeRegex'].get('regex', '')}"
    prefix = match.get("pathSeparatedPrefix")
    return f"{prefix}/*" if prefix is not None else f"{match.get('prefix', '')}*"


def _named(mark: str, name: str, matcher: dict[str, Any]) -> str:
    negated = "!" if matcher.get("invertMatch") else ""
    for sign, value in (
        (_VALUE_MATCHES[kind], value)
        for kind, value in matcher.get("stringMatch", {}).items()
        if kind in _VALUE_MATCHES
    ):
        return f"{negated}{mark}{name}{sign}{value.get('regex', '') if isinstance(value, dict) else value}"
    return f"{negated}{mark}{name}"


def _destination(route: dict[str, Any]) -> str:
    if redirect := route.get("redirect"):
        return f"redirect {_redirected(redirect)}"
    if direct := route.get("directResponse"):
        return f"direct response {direct['status']}"
    action = route.get("route", {})
    if weighted := action.get("weightedClusters"):
        return ", ".join(f"{short(c['name'])} {c.get('weight', 0)}" for c in weighted["clusters"])
    return (
        short(action["cluster"])
        if "cluster" in action
        else "by header " + action["clusterHeader"]
        if "clusterHeader" in action
        else "-"
    )


def _redirected(redirect: dict[str, Any]) -> str:
    scheme = redirect.get("schemeRedirect") or ("https" if redirect.get("httpsRedirect") else "")
    path = redirect.get("pathRedirect") or redirect.get("prefixRewrite") or ""
    return f"{scheme + '://' if scheme else ''}{redirect.get('hostRedirect', '')}{path}"


def short(cluster: str) -> str:
    """Return the readable name of a cluster, such as `reviews.default.svc.cluster.local:9080/v1`."""
    name = parse_cluster(cluster)
    if name is None or not name.host:
        return cluster
    return f"{name.host}:{name.port}" + (f"/{name.subset}" if name.subset else "")

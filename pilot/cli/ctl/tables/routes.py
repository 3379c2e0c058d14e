"""Routes: the matches and destinations of requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pilot.cli.ctl.tables.filters import Filters
from pilot.cli.ctl.tables.source import config_object
from pilot.envoy.names import parse_cluster

FILTERS = ("name", "fqdn")
HEAD = (
    *("NAME", "VHOST NAME", "DOMAINS", "MATCH", "DESTINATION", "VIRTUAL SERVICE"),
    *("TIMEOUT", "RETRIES", "FAULT"),
)
_SHOWN_DOMAINS = 2
_PARTS = {"TEN_THOUSAND": 100, "MILLION": 10_000}
"""Denominators of a fraction in percent."""
_VALUE_MATCHES = {"exact": "=", "prefix": "=^", "suffix": "=$", "contains": "=~", "safeRegex": "=~"}


def select(configurations: Iterable[dict[str, Any]], filters: Filters) -> list[dict[str, Any]]:
    """Return the route configurations that the filters admit, with only the virtual hosts that they admit."""
    named = [configuration for configuration in configurations if filters.name in ("", configuration["name"])]
    if not filters.fqdn:
        return named
    return [
        configuration | {"virtualHosts": hosts}
        for configuration in named
        if (hosts := [host for host in configuration.get("virtualHosts", ()) if _serves(host, filters.fqdn)])
    ]


def _serves(host: dict[str, Any], text: str) -> bool:
    return any(text in domain for domain in host.get("domains", ()))


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


def _route(route: dict[str, Any]) -> tuple[str, ...]:
    if not route:
        return "-", "404", "", "-", "-", "-"
    action = route.get("route", {})
    limits = (_timeout(action), _retries(action.get("retryPolicy", {})), _fault(route))
    return _match(route["match"]), _destination(route), config_object(route, "virtual-service"), *limits


def _timeout(action: dict[str, Any]) -> str:
    timeout = str(action.get("timeout", "0s"))
    return "-" if timeout == "0s" else timeout


def _retries(policy: dict[str, Any]) -> str:
    number = policy.get("numRetries", 1 if policy else 0)
    if not number:
        return "-"
    per_try = f", {policy['perTryTimeout']} each" if policy.get("perTryTimeout") else ""
    return f"{number}{per_try}"


def _fault(route: dict[str, Any]) -> str:
    """Return the faults that are injected, such as `delay 5s 10%, abort 503 1%`."""
    fault = route.get("typedPerFilterConfig", {}).get("envoy.filters.http.fault", {})
    delay, abort = fault.get("delay", {}), fault.get("abort", {})
    parts = [f"delay {delay.get('fixedDelay', '')} {_percent(delay)}"] if delay else []
    status = f"gRPC {abort['grpcStatus']}" if "grpcStatus" in abort else abort.get("httpStatus", "")
    return ", ".join([*parts, *([f"abort {status} {_percent(abort)}"] if abort else [])]) or "-"


def _percent(fault: dict[str, Any]) -> str:
    percentage = fault.get("percentage", {})
    return f"{percentage.get('numerator', 0) / _PARTS.get(percentage.get('denominator', 'HUNDRED'), 1):g}%"


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

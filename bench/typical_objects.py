"""Typical additional objects of a mesh: 20 Telemetries and 20 EnvoyFilters, for a load shape.

One EnvoyFilter in the root namespace applies to all proxies of a tenth of the namespaces. Each of the others applies to
one workload.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

COUNT = 20
ROOT = "istio-system"
Plain = dict[str, Any]
_TYPE = "type.googleapis.com/envoy"
_HTTP_MANAGER = "envoy.filters.network.http_connection_manager"
_LUA = "function envoy_on_request(handle)\n  handle:headers():add('x-typical', 'yes')\nend\n"


def typical_objects(namespaces: list[str], apps: list[str]) -> list[Plain]:
    """Return the objects for the namespaces and apps of a shape. Each app is a service in each namespace."""
    return [*telemetries(namespaces, apps), *envoy_filters(namespaces, apps)]


# -- Telemetry ---------------------------------------------------------------------------------------------------------


def telemetries(namespaces: list[str], apps: list[str]) -> list[Plain]:
    """Return one Telemetry for the mesh, nine for namespaces, and ten for workloads."""
    mesh = {
        "accessLogging": [{"providers": [{"name": "envoy"}], "filter": {"expression": "response.code >= 400"}}],
        "metrics": [{"providers": [{"name": "prometheus"}], "overrides": [_tag("request_host", "request.host")]}],
    }
    out = [_telemetry("mesh-default", ROOT, mesh)]
    contents: list[Plain] = [
        {"accessLogging": [{"providers": [{"name": "envoy"}]}]},
        {
            "metrics": [
                {
                    "providers": [{"name": "prometheus"}],
                    "overrides": [{"match": {"metric": "GRPC_REQUEST_MESSAGES"}, "disabled": True}],
                }
            ]
        },
        {"tracing": [{"disableSpanReporting": True}]},
    ]
    out += [
        _telemetry("namespace-default", _pick(namespaces, number), contents[number % len(contents)])
        for number in range(9)
    ]
    for number in range(COUNT - len(out)):
        spec = {
            "selector": {"matchLabels": {"app": _pick(apps, 2 * number)}},
            "metrics": [{"overrides": [_tag("workload", f"'{number}'")]}],
        }
        out.append(_telemetry(f"workload-{number}", _pick(namespaces, number), spec))
    return out


def _tag(name: str, value: str) -> Plain:
    return {"match": {"metric": "REQUEST_COUNT"}, "tagOverrides": {name: {"operation": "UPSERT", "value": value}}}


def _telemetry(name: str, namespace: str, spec: Plain) -> Plain:
    return {
        "apiVersion": "telemetry.istio.io/v1",
        "kind": "Telemetry",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


# -- EnvoyFilter -------------------------------------------------------------------------------------------------------


def envoy_filters(namespaces: list[str], apps: list[str]) -> list[Plain]:
    """Return one EnvoyFilter for a tenth of the namespaces, and nineteen of six kinds for workloads."""
    tenth = namespaces[: max(1, len(namespaces) // 10)]
    out = [_envoy_filter("tenth", ROOT, {}, [patch for name in tenth for patch in _namespace_patches(name)])]
    for number in range(COUNT - 1):
        namespace, app = _pick(namespaces, number), _pick(apps, 2 * number)
        patches = _workload_patches(number % 6, f"{app}.{namespace}.svc.cluster.local")
        out.append(
            _envoy_filter(f"workload-{number}", namespace, {"workloadSelector": {"labels": {"app": app}}}, patches)
        )
    return out


def _namespace_patches(namespace: str) -> Iterator[Plain]:
    """Yield patches for the proxies of a namespace: a Lua filter and TCP keepalive for inbound requests."""
    proxy = {"metadata": {"NAMESPACE": namespace}}
    manager = {"filterChain": {"filter": {"name": _HTTP_MANAGER, "subFilter": {"name": "envoy.filters.http.router"}}}}
    yield _patch(
        "HTTP_FILTER", {"context": "SIDECAR_INBOUND", "proxy": proxy, "listener": manager}, "INSERT_BEFORE", _lua()
    )
    yield _patch("CLUSTER", {"context": "SIDECAR_INBOUND", "proxy": proxy}, "MERGE", _keepalive())


def _workload_patches(kind: int, host: str) -> list[Plain]:
    outbound, inbound = {"context": "SIDECAR_OUTBOUND"}, {"context": "SIDECAR_INBOUND"}
    manager = {"filterChain": {"filter": {"name": _HTTP_MANAGER}}}
    options = {
        "@type": f"{_TYPE}.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "common_http_protocol_options": {"idle_timeout": "30s"},
    }
    router = {"filterChain": {"filter": {"name": _HTTP_MANAGER, "subFilter": {"name": "envoy.filters.http.router"}}}}
    retries = {"retry_policy": {"retry_on": "5xx", "num_retries": 3}}
    kinds: list[list[Plain]] = [
        [_patch("CLUSTER", {**outbound, "cluster": {"service": host}}, "MERGE", {"connect_timeout": "3s"})],
        [
            _patch(
                "VIRTUAL_HOST", {**outbound, "routeConfiguration": {"vhost": {"name": f"{host}:80"}}}, "MERGE", retries
            )
        ],
        [
            _patch(
                "NETWORK_FILTER",
                {**inbound, "listener": manager},
                "MERGE",
                {"name": _HTTP_MANAGER, "typed_config": options},
            )
        ],
        [_patch("CLUSTER", inbound, "MERGE", {"circuit_breakers": {"thresholds": [{"max_connections": 1000}]}})],
        [_patch("HTTP_FILTER", {**inbound, "listener": router}, "INSERT_BEFORE", _rate_limit())],
        [_patch("CLUSTER", outbound, "MERGE", _keepalive())],
    ]
    return kinds[kind]


def _lua() -> Plain:
    return {
        "name": "envoy.filters.http.lua",
        "typed_config": {
            "@type": f"{_TYPE}.extensions.filters.http.lua.v3.Lua",
            "default_source_code": {"inline_string": _LUA},
        },
    }


def _rate_limit() -> Plain:
    bucket = {"max_tokens": 100, "tokens_per_fill": 100, "fill_interval": "1s"}
    always = {"default_value": {"numerator": 100, "denominator": "HUNDRED"}}
    config = {
        "@type": f"{_TYPE}.extensions.filters.http.local_ratelimit.v3.LocalRateLimit",
        "stat_prefix": "local",
        "token_bucket": bucket,
        "filter_enabled": always,
        "filter_enforced": always,
    }
    return {"name": "envoy.filters.http.local_ratelimit", "typed_config": config}


def _keepalive() -> Plain:
    return {"upstream_connection_options": {"tcp_keepalive": {"keepalive_time": 300, "keepalive_interval": 30}}}


def _patch(apply_to: str, match: Plain, operation: str, value: Plain) -> Plain:
    return {"applyTo": apply_to, "match": match, "patch": {"operation": operation, "value": value}}


def _envoy_filter(name: str, namespace: str, selector: Plain, patches: list[Plain]) -> Plain:
    metadata, spec = {"name": name, "namespace": namespace}, {**selector, "configPatches": patches}
    return {"apiVersion": "networking.istio.io/v1alpha3", "kind": "EnvoyFilter", "metadata": metadata, "spec": spec}


def _pick(names: list[str], number: int) -> str:
    return names[number % len(names)]

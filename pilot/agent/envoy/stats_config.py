"""Which statistics Envoy keeps, and which parts of their names are tags.

The control plane ends the names of clusters, listeners and filters in statistics with ";", so that dots in them end no tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilot.config.mesh.proxy_config import ProxyConfig

READINESS = ("cluster_manager", "listener_manager", "server", "cluster.xds-grpc")
ALWAYS_PREFIXES = ("reporter=", "component", "istio", "wasm")
ALWAYS_SUFFIXES = ("rbac.allowed", "rbac.denied", "shadow_allowed", "shadow_denied")
CONNECTIONS = "downstream_cx_active"
ALWAYS_REGEXES = (r"vhost\..*\.route\..*",)
# The outer group is cut out of the name, the inner one is the tag's value.
TAGS = {
    "cluster_name": r"^cluster\.((.+?);\.)",
    "http_conn_manager_prefix": r"^http\.((.+?);\.)",
    "tcp_prefix": r"^tcp\.((.+?)\.)\w+$",
    "listener_address": r"^listener\.((.+?);?\.)(?:downstream|http|ssl|no_filter|connections|worker|extension|admin|main_thread)",
    "response_code": r"_rq(_(\d{3}))$",
    "response_code_class": r"_rq(_(\dxx))$",
    "component": r"(component\.(.+?)\.)",
    "authz_enforce_result": r"rbac(\.(allowed|denied))",
    "authz_dry_run_action": r"(\.istio_dry_run_(allow|deny)_)",
    "authz_dry_run_result": r"(\.shadow_(allowed|denied))",
}
ANNOTATION = "sidecar.istio.io/"


def build_stats_config(
    config: ProxyConfig, annotations: Mapping[str, str], addresses: Sequence[str], count_connections: bool
) -> dict[str, Any]:
    """Returns Envoy's stats_config: what readiness and the mesh's own metrics need, and what the ProxyConfig or, in its place, an
    annotation asks for. `{pod_ip}` in a pattern stands for each address. ValueError for buckets that are no JSON object of numbers."""
    matcher = config.proxy_stats_matcher
    asked = {
        "prefix": _asked(annotations, "statsInclusionPrefixes", matcher.inclusion_prefixes if matcher else ()),
        "suffix": _asked(annotations, "statsInclusionSuffixes", matcher.inclusion_suffixes if matcher else ()),
        "regex": _asked(annotations, "statsInclusionRegexps", matcher.inclusion_regexps if matcher else ()),
    }
    suffixes = (*ALWAYS_SUFFIXES, CONNECTIONS) if count_connections else ALWAYS_SUFFIXES
    patterns: list[dict[str, Any]] = [
        {"prefix": text} for text in _each((*asked["prefix"], *READINESS, *ALWAYS_PREFIXES), addresses)
    ]
    patterns += [{"suffix": text} for text in _each((*asked["suffix"], *suffixes), addresses)]
    patterns += [{"safe_regex": {"regex": text}} for text in _each((*asked["regex"], *ALWAYS_REGEXES), addresses)]
    extra = dict.fromkeys((*config.extra_stat_tags, *_split(annotations.get(f"{ANNOTATION}extraStatTags", ""))))
    tags = {**TAGS, **{name: rf"({name}=\.=(.*?);\.;)" for name in extra if name}}
    built: dict[str, Any] = {
        "use_all_default_tags": False,
        "stats_tags": [{"tag_name": name, "regex": regex} for name, regex in tags.items()],
        "stats_matcher": {"inclusion_list": {"patterns": patterns}},
    }
    if buckets := annotations.get(f"{ANNOTATION}statsHistogramBuckets"):
        built["histogram_bucket_settings"] = _buckets(buckets)
    return built


def _asked(annotations: Mapping[str, str], name: str, configured: Sequence[str]) -> Sequence[str]:
    text = annotations.get(f"{ANNOTATION}{name}", "")
    return _split(text) if text else configured


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _each(patterns: Sequence[str], addresses: Sequence[str]) -> list[str]:
    found = [
        pattern.replace("{pod_ip}", address)
        for pattern in patterns
        for address in (addresses if "{pod_ip}" in pattern else addresses[:1])
    ]
    return list(dict.fromkeys(found))


def _buckets(text: str) -> list[dict[str, Any]]:
    where = f"annotation {ANNOTATION}statsHistogramBuckets"
    try:
        said: dict[str, list[float]] = msgspec.json.decode(text, type=dict[str, list[float]])
    except msgspec.DecodeError as error:
        raise ValueError(f"{where} is not an object of lists of numbers: {error}") from error
    return [{"match": {"prefix": prefix}, "buckets": said[prefix]} for prefix in sorted(said)]

"""Envoy's stats_config: the statistics to keep and the tags to extract from their names.

The control plane terminates the names of clusters, listeners and filters with ";", so that a dot in a name does not
terminate a tag.
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
# Envoy removes the outer group from the name and uses the inner one as the tag's value.
TAGS = {
    "cluster_name": r"^cluster\.((.+?);\.)",
    "http_conn_manager_prefix": r"^http\.((.+?);\.)",
    "tcp_prefix": r"^tcp\.((.+?)\.)\w+$",
    "listener_address": (
        r"^listener\.((.+?);?\.)(?:downstream|http|ssl|no_filter|connections|worker|extension|admin|main_thread)"
    ),
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
    """Return Envoy's stats_config.

    It includes the statistics for readiness, those for the mesh's metrics, and those that the user requests. An
    annotation overrides the corresponding list of the ProxyConfig. In a pattern, `{pod_ip}` stands for each address.
    Raises ValueError if the histogram buckets are invalid.
    """
    matcher = config.proxy_stats_matcher
    requested = {
        "prefix": _patterns(annotations, "statsInclusionPrefixes", matcher.inclusion_prefixes if matcher else ()),
        "suffix": _patterns(annotations, "statsInclusionSuffixes", matcher.inclusion_suffixes if matcher else ()),
        "regex": _patterns(annotations, "statsInclusionRegexps", matcher.inclusion_regexps if matcher else ()),
    }
    suffixes = (*ALWAYS_SUFFIXES, CONNECTIONS) if count_connections else ALWAYS_SUFFIXES
    patterns: list[dict[str, Any]] = [
        {"prefix": text} for text in _expand((*requested["prefix"], *READINESS, *ALWAYS_PREFIXES), addresses)
    ]
    patterns += [{"suffix": text} for text in _expand((*requested["suffix"], *suffixes), addresses)]
    patterns += [{"safe_regex": {"regex": text}} for text in _expand((*requested["regex"], *ALWAYS_REGEXES), addresses)]
    extra_tags = dict.fromkeys((*config.extra_stat_tags, *_split(annotations.get(f"{ANNOTATION}extraStatTags", ""))))
    tags = {**TAGS, **{name: rf"({name}=\.=(.*?);\.;)" for name in extra_tags if name}}
    stats_config: dict[str, Any] = {
        "use_all_default_tags": False,
        "stats_tags": [{"tag_name": name, "regex": regex} for name, regex in tags.items()],
        "stats_matcher": {"inclusion_list": {"patterns": patterns}},
    }
    if buckets := annotations.get(f"{ANNOTATION}statsHistogramBuckets"):
        stats_config["histogram_bucket_settings"] = _histogram_buckets(buckets)
    return stats_config


def _patterns(annotations: Mapping[str, str], name: str, configured: Sequence[str]) -> Sequence[str]:
    text = annotations.get(f"{ANNOTATION}{name}", "")
    return _split(text) if text else configured


def _split(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _expand(patterns: Sequence[str], addresses: Sequence[str]) -> list[str]:
    """Return the patterns with `{pod_ip}` replaced by each address, without duplicates."""
    expanded = [
        pattern.replace("{pod_ip}", address)
        for pattern in patterns
        for address in (addresses if "{pod_ip}" in pattern else addresses[:1])
    ]
    return list(dict.fromkeys(expanded))


def _histogram_buckets(text: str) -> list[dict[str, Any]]:
    source = f"annotation {ANNOTATION}statsHistogramBuckets"
    try:
        buckets: dict[str, list[float]] = msgspec.json.decode(text, type=dict[str, list[float]])
    except msgspec.DecodeError as error:
        raise ValueError(f"{source} is not an object with lists of numbers: {error}") from error
    return [{"match": {"prefix": prefix}, "buckets": buckets[prefix]} for prefix in sorted(buckets)]

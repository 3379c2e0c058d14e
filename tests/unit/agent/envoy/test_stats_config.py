"""Stats of Envoy: included names, tags and histogram buckets."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.agent.envoy.stats_config import build_stats_config
from tests.unit.agent.envoy.test_proxy_bootstrap import make_context


def patterns(bootstrap: dict[str, Any]) -> set[tuple[str, str]]:
    pairs = set()
    for pattern in bootstrap["stats_matcher"]["inclusion_list"]["patterns"]:
        ((kind, value),) = pattern.items()
        pairs.add((kind, value["regex"] if kind == "safe_regex" else value))
    return pairs


def test_stats_include_required_and_configured_ones() -> None:
    matcher = {"inclusionPrefixes": ["http.{pod_ip}_"], "inclusionRegexps": ["a.*"]}
    config = make_context({"proxyStatsMatcher": matcher, "extraStatTags": ["mine"]}).config
    bootstrap = build_stats_config(
        config, {"sidecar.istio.io/statsInclusionSuffixes": "x,y"}, ("10.0.0.1", "10.0.0.2"), False
    )
    included = patterns(bootstrap)
    assert {
        ("prefix", "http.10.0.0.1_"),
        ("prefix", "http.10.0.0.2_"),
        ("safe_regex", "a.*"),
        ("suffix", "x"),
        ("suffix", "y"),
    } <= included
    assert {
        ("prefix", "listener_manager"),
        ("prefix", "cluster_manager"),
        ("prefix", "server"),
        ("suffix", "rbac.denied"),
    } <= included
    assert ("suffix", "downstream_cx_active") not in included
    assert "mine" in {tag["tag_name"] for tag in bootstrap["stats_tags"]}


def test_annotation_overrides_the_stats_matcher() -> None:
    config = make_context({"proxyStatsMatcher": {"inclusionPrefixes": ["config"]}}).config
    included = patterns(
        build_stats_config(config, {"sidecar.istio.io/statsInclusionPrefixes": "annotation"}, ("10.0.0.1",), True)
    )
    assert ("prefix", "annotation") in included
    assert ("prefix", "config") not in included
    assert ("suffix", "downstream_cx_active") in included


def test_histogram_buckets_come_from_an_annotation() -> None:
    annotation = "sidecar.istio.io/statsHistogramBuckets"
    bootstrap = build_stats_config(
        make_context().config, {annotation: '{"b": [1, 2.5], "a": [3]}'}, ("10.0.0.1",), False
    )
    assert bootstrap["histogram_bucket_settings"] == [
        {"match": {"prefix": "a"}, "buckets": [3]},
        {"match": {"prefix": "b"}, "buckets": [1, 2.5]},
    ]
    with pytest.raises(ValueError, match=f"annotation {annotation} is not an object"):
        build_stats_config(make_context().config, {annotation: "[1]"}, ("10.0.0.1",), False)

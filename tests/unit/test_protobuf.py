"""Messages whatever their type: read from JSON with every mistake and its place, merged, and held against the rules that their fields declare."""
from __future__ import annotations

from typing import Any

import pytest
import yaml
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.route.v3 import route_components_pb2
from google.protobuf import json_format, wrappers_pb2

from pilot.lib.protobuf.constraints import find_broken, unpack
from pilot.lib.protobuf.fault import as_written, shown
from pilot.lib.protobuf.merge import merge
from pilot.lib.protobuf.reader import read_message
from pilot.lib.protobuf.types import find_type

Cluster, Route, VirtualHost = cluster_pb2.Cluster, route_components_pb2.Route, route_components_pb2.VirtualHost
TYPES: dict[str, Any] = {"cluster": Cluster, "route": Route, "host": VirtualHost, "filter": listener_components_pb2.Filter}
BUFFER = "envoy.extensions.filters.http.buffer.v3.Buffer"


def read(kind: str, text: str) -> Any:
    message, faults = read_message(TYPES[kind], yaml.safe_load(f"{{{text}}}"))
    assert not faults
    return message


# -- reading ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("nobody_knows: 1", "unknown-field", "nobody_knows"),
        ("upstream_bind_config: {nobody: 1}", "unknown-field", "upstream_bind_config.nobody"),
        ("connectTimeout: abc", "wrong-type", "connectTimeout"),
        ("connect_timeout: 4", "wrong-type", "connect_timeout"),
        ("type: NONSENSE", "wrong-type", "type"),
        ("name: 5", "wrong-type", "name"),
        ("eds_cluster_config: []", "wrong-type", "eds_cluster_config"),
        ("filters: {}", "wrong-type", "filters"),
        ("filters: [{}, 5]", "wrong-type", "filters[1]"),
        ("per_connection_buffer_limit_bytes: -1", "wrong-type", "per_connection_buffer_limit_bytes"),
        ("lb_subset_config: {subset_selectors: [{keys: [a, 1]}]}", "wrong-type", "lb_subset_config.subset_selectors[0].keys[1]"),
        ("metadata: {filter_metadata: {a: {}, b: 5}}", "wrong-type", "metadata.filter_metadata.b"),
        ("typed_extension_protocol_options: 5", "wrong-type", "typed_extension_protocol_options"),
        ("type: EDS, cluster_type: {name: x}", "exclusive-fields", "cluster_type"),
        ("connect_timeout: 1s, connectTimeout: 2s", "exclusive-fields", "connectTimeout"),
        ("filters: [{typed_config: {}}]", "missing-type", "filters[0].typed_config"),
        ("filters: [{typed_config: {'@type': x/no.Such}}]", "unknown-type", "filters[0].typed_config.@type"),
        ("filters: [{typed_config: {'@type': x/os.path}}]", "unknown-type", "filters[0].typed_config.@type"),
        ("filters: [{typed_config: 5}]", "wrong-type", "filters[0].typed_config"),
        (f"filters: [{{typed_config: {{'@type': x/{BUFFER}, max: 1}}}}]", "unknown-field", "filters[0].typed_config.max"),
        ("filters: [{typed_config: {'@type': x/google.protobuf.Duration, value: 1}}]", "wrong-type", "filters[0].typed_config.value"),
        (
            f"filters: [{{typed_config: {{'@type': x/xds.type.v3.TypedStruct, type_url: x/{BUFFER}, value: {{max: 1}}}}}}]",
            "unknown-field",
            "filters[0].typed_config.value.max",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, code: str, place: str) -> None:
    _, faults = read_message(Cluster, yaml.safe_load(f"{{{text}}}"))
    assert [(fault.code, shown(fault.place)) for fault in faults] == [(code, place)]
    assert faults[0].text


def test_every_mistake_is_told_and_the_rest_is_read() -> None:
    message, faults = read_message(Cluster, {"name": "x", "a": 1, "type": "b", "filters": [{"c": 1, "name": "y"}]})
    assert [shown(fault.place) for fault in faults] == ["a", "type", "filters[0].c"]
    assert (message.name, message.filters[0].name) == ("x", "y")


def test_what_protobuf_writes_as_json_is_read_again() -> None:
    text = f"""
      name: x, type: STRICT_DNS, connect_timeout: 0.25s, per_connection_buffer_limit_bytes: 5, track_cluster_stats: {{}}, lb_policy: 5,
      metadata: {{filter_metadata: {{a: {{b: [1, null, {{c: d}}]}}}}}},
      typed_extension_protocol_options: {{a: {{'@type': type.googleapis.com/{BUFFER}, max_request_bytes: 7}}}},
      filters: [{{name: f, typed_config: {{'@type': type.googleapis.com/google.protobuf.StringValue, value: text}}}}]"""
    message = read("cluster", text)
    for keep_names in (True, False):
        plain = json_format.MessageToDict(message, preserving_proto_field_name=keep_names)
        again, faults = read_message(Cluster, plain)
        assert not faults
        assert again == message
    assert unpack(message.filters[0].typed_config) == wrappers_pb2.StringValue(value="text")


def test_null_is_nothing() -> None:
    assert read("cluster", "name: x, connect_timeout: null, type: null") == Cluster(name="x")


def test_messages_nested_without_end_are_told() -> None:
    plain: dict[str, Any] = {}
    for _ in range(300):
        plain = {"and_match": {"rules": [plain]}}
    kind = find_type("envoy.config.common.matcher.v3.MatchPredicate")
    assert kind is not None
    assert {fault.code for fault in read_message(kind, plain)[1]} == {"too-deep"}


def test_names_of_types_import_nothing_else() -> None:
    assert find_type("antigravity.X") is None
    assert find_type("envoy") is None
    assert find_type("envoy..x") is None
    assert find_type("envoy.config.cluster.v3.Cluster.LbSubsetConfig") is Cluster.LbSubsetConfig


def test_a_place_is_told_as_it_is_written() -> None:
    plain = {"connectTimeout": "0s", "filters": [{"typed_config": {}}]}
    assert as_written(("connect_timeout",), plain) == ("connectTimeout",)
    assert as_written(("filters", 0, "typed_config", "stat_prefix"), plain) == ("filters", 0, "typed_config")
    assert as_written(("filters", 3, "name"), plain) == ("filters",)


# -- merging ---------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize(
    ("before", "patch", "after"),
    [
        ("name: a, alt_stat_name: b", "name: c", "name: c, alt_stat_name: b"),
        ("connect_timeout: 10s", "connect_timeout: 0.5s", "connect_timeout: 0.5s"),
        ("per_connection_buffer_limit_bytes: 5", "per_connection_buffer_limit_bytes: 6", "per_connection_buffer_limit_bytes: 6"),
        ("filters: [{name: a}]", "filters: [{name: b}]", "filters: [{name: a}, {name: b}]"),
        (
            "eds_cluster_config: {service_name: x}",
            "eds_cluster_config: {eds_config: {ads: {}}}",
            "eds_cluster_config: {service_name: x, eds_config: {ads: {}}}",
        ),
        ("ring_hash_lb_config: {minimum_ring_size: 1}", "maglev_lb_config: {}", "maglev_lb_config: {}"),
        ("", "common_lb_config: {}", "common_lb_config: {}"),
        (
            "metadata: {filter_metadata: {a: {x: 1}, b: {}}}",
            "metadata: {filter_metadata: {a: {y: 2}}}",
            "metadata: {filter_metadata: {a: {y: 2}, b: {}}}",
        ),
    ],
)
def test_messages_are_merged(before: str, patch: str, after: str) -> None:
    into, value = read("cluster", before), read("cluster", patch)
    merge(into, value)
    assert into == read("cluster", after)
    assert value == read("cluster", patch)


def test_lists_are_replaced_where_that_is_asked_for() -> None:
    into = read("host", "domains: [a, b], routes: [{name: x}], cors: {expose_headers: a, allow_origin_string_match: [{exact: a}]}")
    merge(into, read("host", "domains: [c], cors: {allow_origin_string_match: [{exact: b}]}"), replace_lists=True)
    assert into == read("host", "domains: [c], routes: [{name: x}], cors: {expose_headers: a, allow_origin_string_match: [{exact: b}]}")


# -- rules -----------------------------------------------------------------------------------------------------------------

TCP = "name: x, typed_config: {'@type': type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"


@pytest.mark.parametrize(
    ("kind", "text", "places"),
    [
        ("cluster", "name: x", []),
        ("cluster", "", ["name"]),
        ("cluster", "name: x, connect_timeout: 0s", ["connect_timeout"]),
        ("cluster", "name: x, lb_policy: 99", ["lb_policy"]),
        ("cluster", "name: x, dns_refresh_rate: 0.002s", []),
        ("cluster", "name: x, dns_refresh_rate: 0.001s", ["dns_refresh_rate"]),
        ("cluster", "name: x, load_assignment: {}", ["load_assignment.cluster_name"]),
        ("cluster", "name: x, circuit_breakers: {thresholds: [{priority: 7}]}", ["circuit_breakers.thresholds[0].priority"]),
        ("cluster", "name: x, ring_hash_lb_config: {minimum_ring_size: 8388609}", ["ring_hash_lb_config.minimum_ring_size"]),
        ("route", "match: {prefix: /}, direct_response: {status: 204}", []),
        ("route", "match: {prefix: /}, direct_response: {status: 99}", ["direct_response.status"]),
        ("route", "match: {prefix: /}", [""]),
        ("route", "direct_response: {status: 204}", ["match"]),
        ("route", "match: {}, direct_response: {status: 204}", ["match"]),
        ("route", "match: {prefix: /}, redirect: {response_code: 77}", ["redirect.response_code"]),
        ("route", "match: {prefix: /}, route: {cluster: ''}", ["route.cluster"]),
        ("route", r'match: {prefix: /}, route: {cluster: x, prefix_rewrite: "/a\nb"}', ["route.prefix_rewrite"]),
        ("host", "name: x, domains: [a]", []),
        ("host", "name: x, domains: []", ["domains"]),
        ("host", "name: x, domains: [a], request_headers_to_remove: ['']", ["request_headers_to_remove[0]"]),
        ("filter", f"{TCP}, stat_prefix: x, cluster: y}}", []),
        ("filter", f"{TCP}, cluster: y}}", ["typed_config.stat_prefix"]),
        ("filter", f"{TCP}, stat_prefix: x}}", ["typed_config"]),
    ],
)
def test_a_message_that_envoy_would_refuse_is_found(kind: str, text: str, places: list[str]) -> None:
    broken = list(find_broken(read(kind, text)))
    assert [shown(fault.place) for fault in broken] == places
    assert all(fault.text for fault in broken)


@pytest.mark.parametrize(
    ("kind", "text", "places"),
    [
        ("cluster", "", []),
        ("cluster", "connect_timeout: 0s", ["connect_timeout"]),
        ("route", "route: {timeout: 1s}", []),
        ("filter", f"{TCP}, idle_timeout: 1s}}", []),
        ("host", "routes: [{name: x}]", ["routes[0]", "routes[0].match"]),
    ],
)
def test_what_is_merged_need_not_be_whole_but_items_of_lists_are(kind: str, text: str, places: list[str]) -> None:
    assert [shown(fault.place) for fault in find_broken(read(kind, text), partial=True)] == places


def test_only_what_is_touched_is_looked_at() -> None:
    message = read("cluster", "connect_timeout: 0s, dns_refresh_rate: 0s")
    assert [shown(f.place) for f in find_broken(message, touched=read("cluster", "connect_timeout: 1s"))] == ["connect_timeout"]

"""Reading, merging and rule checks of protobuf messages of any type."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from envoy.config.cluster.v3 import cluster_pb2
from envoy.config.core.v3 import base_pb2
from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.route.v3 import route_components_pb2
from google.protobuf import json_format, wrappers_pb2

from pilot.lib.protobuf.constraints import find_broken, find_overfull, unpack
from pilot.lib.protobuf.fault import as_written, shown
from pilot.lib.protobuf.merge import merge
from pilot.lib.protobuf.reader import read_message
from pilot.lib.protobuf.types import find_type

Cluster, Route, VirtualHost = cluster_pb2.Cluster, route_components_pb2.Route, route_components_pb2.VirtualHost
TYPES: dict[str, Any] = {
    "cluster": Cluster,
    "route": Route,
    "host": VirtualHost,
    "filter": listener_components_pb2.Filter,
}
LUA = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
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
        (
            "lb_subset_config: {subset_selectors: [{keys: [a, 1]}]}",
            "wrong-type",
            "lb_subset_config.subset_selectors[0].keys[1]",
        ),
        ("metadata: {filter_metadata: {a: {}, b: 5}}", "wrong-type", "metadata.filter_metadata.b"),
        ("typed_extension_protocol_options: 5", "wrong-type", "typed_extension_protocol_options"),
        ("type: EDS, cluster_type: {name: x}", "exclusive-fields", "cluster_type"),
        ("connect_timeout: 1s, connectTimeout: 2s", "exclusive-fields", "connectTimeout"),
        ("filters: [{typed_config: {}}]", "missing-type", "filters[0].typed_config"),
        ("filters: [{typed_config: {'@type': x/no.Such}}]", "unknown-type", "filters[0].typed_config.@type"),
        ("filters: [{typed_config: {'@type': x/os.path}}]", "unknown-type", "filters[0].typed_config.@type"),
        ("filters: [{typed_config: 5}]", "wrong-type", "filters[0].typed_config"),
        (
            f"filters: [{{typed_config: {{'@type': x/{BUFFER}, max: 1}}}}]",
            "unknown-field",
            "filters[0].typed_config.max",
        ),
        (
            "filters: [{typed_config: {'@type': x/google.protobuf.Duration, value: 1}}]",
            "wrong-type",
            "filters[0].typed_config.value",
        ),
        (
            f"filters: [{{typed_config: {{'@type': x/xds.type.v3.TypedStruct, type_url: x/{BUFFER}, value: {{max: 1}}}}}}]",
            "unknown-field",
            "filters[0].typed_config.value.max",
        ),
    ],
)
def test_faults_have_a_code_and_a_place(text: str, code: str, place: str) -> None:
    _, faults = read_message(Cluster, yaml.safe_load(f"{{{text}}}"))
    assert [(fault.code, shown(fault.place)) for fault in faults] == [(code, place)]
    assert faults[0].text


def test_all_faults_are_reported_and_valid_fields_are_read() -> None:
    message, faults = read_message(Cluster, {"name": "x", "a": 1, "type": "b", "filters": [{"c": 1, "name": "y"}]})
    assert [shown(fault.place) for fault in faults] == ["a", "type", "filters[0].c"]
    assert (message.name, message.filters[0].name) == ("x", "y")


def test_protobuf_json_round_trips() -> None:
    text = f"""
      name: x, type: STRICT_DNS, connect_timeout: 0.25s, per_connection_buffer_limit_bytes: 5, track_cluster_stats: {{}}, lb_policy: 5,
      metadata: {{filter_metadata: {{a: {{b: [1, null, {{c: d}}]}}}}}},
      typed_extension_protocol_options: {{a: {{'@type': type.googleapis.com/{BUFFER}, max_request_bytes: 7}}}},
      filters: [{{name: f, typed_config: {{'@type': type.googleapis.com/google.protobuf.StringValue, value: text}}}}]"""
    message = read("cluster", text)
    for keep_names in (True, False):
        plain = json_format.MessageToDict(message, preserving_proto_field_name=keep_names)
        copy, faults = read_message(Cluster, plain)
        assert not faults
        assert copy == message
    assert unpack(message.filters[0].typed_config) == wrappers_pb2.StringValue(value="text")


def test_null_fields_are_ignored() -> None:
    assert read("cluster", "name: x, connect_timeout: null, type: null") == Cluster(name="x")


def test_excessive_nesting_is_reported() -> None:
    plain: dict[str, Any] = {}
    for _ in range(300):
        plain = {"and_match": {"rules": [plain]}}
    message_type = find_type("envoy.config.common.matcher.v3.MatchPredicate")
    assert message_type is not None
    assert {fault.code for fault in read_message(message_type, plain)[1]} == {"too-deep"}


BUFFER_FIELDS = f"'@type': x/{BUFFER}, max_request_bytes: 7"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nobody: 1", "nobody: envoy.config.cluster.v3.Cluster has no field nobody"),
        (
            "conect_timeout: 1s",
            "conect_timeout: envoy.config.cluster.v3.Cluster has no field conect_timeout (did you mean connect_timeout?)",
        ),
        (
            "conectTimeout: 1s",
            "conectTimeout: envoy.config.cluster.v3.Cluster has no field conectTimeout (did you mean connectTimeout?)",
        ),
        ("eds_cluster_config: []", "eds_cluster_config: expected a mapping for EdsClusterConfig, got a list"),
        ("eds_cluster_config: text", "eds_cluster_config: expected a mapping for EdsClusterConfig, got a string"),
        ("eds_cluster_config: true", "eds_cluster_config: expected a mapping for EdsClusterConfig, got true or false"),
        ("filters: {}", "filters: expected a list, got a mapping"),
        ("filters: 1.5", "filters: expected a list, got a number"),
        ("filters: [null]", "filters[0]: expected a mapping for Filter, got nothing"),
        ("metadata: {filter_metadata: 5}", "metadata.filter_metadata: expected a mapping, got a number"),
        ("type: EDS, cluster_type: {name: x}", "cluster_type: only one of type and cluster_type may be set"),
        (
            "connect_timeout: 1s, connectTimeout: 2s",
            "connectTimeout: only one of connect_timeout and connectTimeout may be set",
        ),
        ("filters: [{typed_config: 5}]", "filters[0].typed_config: expected a mapping with @type, got a number"),
        (
            "filters: [{typed_config: {'@type': 5}}]",
            "filters[0].typed_config: @type is required: name the type, such as type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        ),
        (
            "filters: [{typed_config: {'@type': ''}}]",
            "filters[0].typed_config: @type is required: name the type, such as type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
        ),
        (
            "filters: [{typed_config: {'@type': x/no.Such}}]",
            "filters[0].typed_config.@type: unknown type x/no.Such",
        ),
        *(
            (
                f"filters: [{{typed_config: {{'@type': type.googleapis.com/{name}}}}}]",
                f"filters[0].typed_config.@type: unknown type type.googleapis.com/{name}{hint}",
            )
            for name, hint in (
                ("envoy.extensions.filters.http.lua.v3.LuaConfig", f"; did you mean {LUA}?"),
                ("envoy.extensions.filter.http.lua.v3.Lua", f"; did you mean {LUA}?"),
                ("envoy.extensions.filters.http.lua.v4.lua", f"; did you mean {LUA}?"),
                ("envoy.extensions.filters.http.lua.v3.Wasm", ""),
                ("os.path.Lua", ""),
            )
        ),
        (
            "filters: [{typed_config: {'@type': x/envoy.config.filter.http.buffer.v2.Buffer}}]",
            "filters[0].typed_config.@type: unknown type x/envoy.config.filter.http.buffer.v2.Buffer; Envoy removed the v2 API: write type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
        ),
        (
            "filters: [{typed_config: {'@type': x/google.protobuf.Duration}}]",
            "filters[0].typed_config.value: is required",
        ),
        ("connectTimeout: abc", 'connectTimeout: Duration must end with letter "s": abc'),
    ],
)
def test_fault_texts(text: str, expected: str) -> None:
    _, (fault,) = read_message(Cluster, yaml.safe_load(f"{{{text}}}"))
    assert f"{shown(fault.place)}: {fault.text}" == expected


def test_valid_map_entries_beside_invalid_ones_are_read() -> None:
    values, (fault,) = read_message(
        Cluster, yaml.safe_load("{metadata: {filter_metadata: {a: {x: 1}, b: 5, c: {y: 2}}}}")
    )
    assert (shown(fault.place), fault.text) == (
        "metadata.filter_metadata.b",
        "expected a mapping for Struct, got a number",
    )
    assert values == read("cluster", "metadata: {filter_metadata: {a: {x: 1}, c: {y: 2}}}")
    options = f"{{typed_extension_protocol_options: {{a: {{{BUFFER_FIELDS}}}, b: {{'@type': x/no.Such}}, c: {{{BUFFER_FIELDS}}}}}}}"
    messages, (fault,) = read_message(Cluster, yaml.safe_load(options))
    assert shown(fault.place) == "typed_extension_protocol_options.b.@type"
    buffers = {key: unpack(value) for key, value in messages.typed_extension_protocol_options.items() if value.type_url}
    assert {key: value.max_request_bytes.value for key, value in buffers.items()} == {"a": 7, "c": 7}


def test_any_type_urls_and_well_known_values() -> None:
    configs = (f"{{'@type': {BUFFER}}}", "{'@type': x/google.protobuf.Duration, value: 2s}")
    filters = read("cluster", f"filters: [{', '.join(f'{{typed_config: {text}}}' for text in configs)}]").filters
    assert [f.typed_config.type_url for f in filters] == [f"type.googleapis.com/{BUFFER}", "x/google.protobuf.Duration"]
    assert unpack(filters[1].typed_config).seconds == 2


@pytest.mark.parametrize(
    "rest", ["x/no.Such, value: {max: 1}", f"x/{BUFFER}", f"x/{BUFFER}, value: {{max_request_bytes: 7}}"]
)
def test_typed_structs_that_are_not_checked(rest: str) -> None:
    read("cluster", f"filters: [{{typed_config: {{'@type': x/xds.type.v3.TypedStruct, type_url: {rest}}}}}]")


def test_nesting_limit() -> None:
    def faults(times: int) -> list[str]:
        plain: dict[str, Any] = {"any_match": True}
        for _ in range(times):
            plain = {"and_match": {"rules": [plain]}}
        message_type = find_type("envoy.config.common.matcher.v3.MatchPredicate")
        assert message_type is not None
        return [fault.text for fault in read_message(message_type, plain)[1]]

    assert (faults(20), faults(21)) == ([], ["messages are nested more than 60 deep"])


def test_find_type_imports_only_messages() -> None:
    assert find_type("antigravity.X") is None
    assert find_type("envoy") is None
    assert find_type("envoy..x") is None
    assert find_type("envoy.config.cluster.v3.Cluster.LbSubsetConfig") is Cluster.LbSubsetConfig


def test_places_use_the_spelling_of_the_input() -> None:
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
        (
            "per_connection_buffer_limit_bytes: 5",
            "per_connection_buffer_limit_bytes: 6",
            "per_connection_buffer_limit_bytes: 6",
        ),
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
    target, value = read("cluster", before), read("cluster", patch)
    merge(target, value)
    assert target == read("cluster", after)
    assert value == read("cluster", patch)


def test_merge_replaces_lists_on_request() -> None:
    target = read(
        "host",
        "domains: [a, b], routes: [{name: x}], cors: {expose_headers: a, allow_origin_string_match: [{exact: a}]}",
    )
    merge(target, read("host", "domains: [c], cors: {allow_origin_string_match: [{exact: b}]}"), replace_lists=True)
    assert target == read(
        "host", "domains: [c], routes: [{name: x}], cors: {expose_headers: a, allow_origin_string_match: [{exact: b}]}"
    )


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
        (
            "cluster",
            "name: x, circuit_breakers: {thresholds: [{priority: 7}]}",
            ["circuit_breakers.thresholds[0].priority"],
        ),
        (
            "cluster",
            "name: x, ring_hash_lb_config: {minimum_ring_size: 8388609}",
            ["ring_hash_lb_config.minimum_ring_size"],
        ),
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
def test_broken_rules(kind: str, text: str, places: list[str]) -> None:
    faults = list(find_broken(read(kind, text)))
    assert [shown(fault.place) for fault in faults] == places
    assert all(fault.text for fault in faults)


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
def test_partial_messages_skip_required_fields_except_in_lists(kind: str, text: str, places: list[str]) -> None:
    assert [shown(fault.place) for fault in find_broken(read(kind, text), partial=True)] == places


OPTIONS = "'@type': x/envoy.extensions.upstreams.http.v3.HttpProtocolOptions"


def test_map_values_are_checked_in_key_order() -> None:
    message = read("cluster", f"name: a, typed_extension_protocol_options: {{b: {{{OPTIONS}}}, a: {{{OPTIONS}}}}}")
    for partial in (False, True):
        assert [shown(fault.place) for fault in find_broken(message, partial=partial)] == [
            "typed_extension_protocol_options.a",
            "typed_extension_protocol_options.b",
        ]


def _mirror(*names: str) -> Any:
    policy = route_components_pb2.InternalRedirectPolicy(response_headers_to_copy=names)
    return route_components_pb2.Route(route=route_components_pb2.RouteAction(internal_redirect_policy=policy))


COPIED = "route.internal_redirect_policy.response_headers_to_copy"


@pytest.mark.parametrize(
    ("existing", "added", "replaces_lists", "texts"),
    [
        (["a"], ["b"], False, []),
        (["a"], ["a"], False, ["must not have duplicate items"]),
        (["a"], ["a"], True, []),
        ([], ["a"], False, []),
        (
            [f"a{n}" for n in range(1000)],
            ["b"],
            False,
            ["must have at most 1000 items, which are compared with each other"],
        ),
    ],
)
def test_lists_that_a_merge_extends_are_checked_together(
    existing: list[str], added: list[str], replaces_lists: bool, texts: list[str]
) -> None:
    faults = list(find_overfull(_mirror(*existing), _mirror(*added), replaces_lists))
    assert [(shown(fault.place), fault.text) for fault in faults] == [(COPIED, text) for text in texts]


def test_list_that_a_merge_makes_too_long_is_found() -> None:
    def headers(count: int) -> Any:
        option = base_pb2.HeaderValueOption(header=base_pb2.HeaderValue(key="a"))
        return route_components_pb2.Route(response_headers_to_add=[option] * count)

    assert [*find_overfull(headers(600), headers(400))] == []
    (fault,) = find_overfull(headers(600), headers(401))
    assert fault.place == ("response_headers_to_add",)

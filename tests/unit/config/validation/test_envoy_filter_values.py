"""EnvoyFilter values that would take quadratic time to check, or fail to decode. Without limits, these tests do not end
or raise an exception."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from pilot.config.kinds.istio import ENVOY_FILTER
from pilot.config.networking.envoy_filter import EnvoyFilter
from pilot.config.object import Object
from pilot.config.patch_value import read_patch_value, read_patch_value_in_steps
from pilot.config.problem import Severity
from pilot.config.validation.traffic.envoy_filter import MAX_VALUES, validate_envoy_filter
from pilot.ingest.decode import decode_document
from pilot.lib.protobuf.constraints import find_broken
from pilot.lib.protobuf.reader import MAX_FAULTS

N = 200_000


def make_filter(patches: list[dict[str, Any]]) -> Object[EnvoyFilter]:
    return Object(ENVOY_FILTER.id, "a", "a", msgspec.convert({"configPatches": patches}, EnvoyFilter))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


def _rbac(levels: int, innermost: Any) -> dict[str, Any]:
    """Return a network filter with a permission in nested permissions."""
    for _ in range(levels):
        innermost = {"not_rule": innermost}
    policy = {"permissions": [innermost], "principals": [{"any": True}]}
    kind = "type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"
    return {
        "name": "rbac",
        "typed_config": {"@type": kind, "stat_prefix": "rbac", "rules": {"policies": {"a": policy}}},
    }


def _envoy_filter(*patches: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.istio.io/v1alpha3",
        "kind": "EnvoyFilter",
        "metadata": {"name": "large", "namespace": "tenant"},
        "spec": {"configPatches": list(patches)},
    }


@pytest.mark.parametrize(
    "value",
    [
        {f"x{i}": 1 for i in range(N)},
        {"load_assignment": {f"x{i}": 1 for i in range(N)}},
        {"typed_extension_protocol_options": {f"x{i}": {} for i in range(N)}},
    ],
    ids=["fields", "nested", "map"],
)
def test_unknown_fields_are_reported_in_linear_time(value: dict[str, Any]) -> None:
    _, faults = read_patch_value("CLUSTER", "MERGE", value)
    assert len(faults) == MAX_FAULTS


def test_unknown_fields_of_a_patch_are_problems_of_the_object() -> None:
    patch = {
        "applyTo": "CLUSTER",
        "patch": {"operation": "MERGE", "value": {f"x{i}": 1 for i in range(MAX_VALUES - 10)}},
    }
    problems = decode_document(_envoy_filter(patch)).problems
    assert {(p.code, p.severity) for p in problems} == {("unknown-field", Severity.WARNING)}
    assert problems[0].path == "spec.configPatches[0].patch.value.x0"


def test_filter_with_many_values_is_refused() -> None:
    patch = {
        "applyTo": "LISTENER",
        "patch": {"operation": "MERGE", "value": {"filter_chains": [{}] * (MAX_VALUES + 1)}},
    }
    problems = decode_document(_envoy_filter(patch)).problems
    assert [(p.code, p.path, p.severity) for p in problems] == [("too-large", "spec.configPatches", Severity.ERROR)]


def test_filter_with_many_patches_is_refused() -> None:
    patch = {"applyTo": "CLUSTER", "patch": {"operation": "REMOVE"}}
    problems = decode_document(_envoy_filter(*[patch] * (MAX_VALUES + 1))).problems
    assert [(p.code, p.path) for p in problems] == [("too-large", "spec.configPatches")]


def test_long_lua_script_is_accepted() -> None:
    kind = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    value = {"name": "lua", "typed_config": {"@type": kind, "inlineCode": "-- comment\n" * 20_000}}
    patch = {"applyTo": "HTTP_FILTER", "patch": {"operation": "INSERT_FIRST", "value": value}}
    assert not decode_document(_envoy_filter(patch)).problems


def test_invalid_items_of_long_lists_are_found() -> None:
    headers: list[Any] = [f"x-{i}" for i in range(10_000)]
    headers[4321], headers[9999] = 1, {}
    _, faults = read_patch_value("ROUTE_CONFIGURATION", "MERGE", {"request_headers_to_remove": headers})
    assert [fault.place for fault in faults] == [
        ("request_headers_to_remove", 4321),
        ("request_headers_to_remove", 9999),
    ]


@pytest.mark.parametrize("levels", range(1, 60))
@pytest.mark.parametrize("outer", [0, 20, 40, 55])
def test_deeply_nested_values_are_reported(outer: int, levels: int) -> None:
    metadata = {"filter_metadata": {"a": _nested(levels)}}
    typed_struct = {"type_url": "type.googleapis.com/envoy.config.core.v3.Metadata", "value": metadata}
    for config in (
        {"@type": "type.googleapis.com/google.protobuf.Struct", "value": _nested(levels)},
        {"@type": "type.googleapis.com/envoy.config.core.v3.Metadata", **metadata},
        {"@type": "type.googleapis.com/udpa.type.v1.TypedStruct", **typed_struct},
    ):
        value = _rbac(outer, {"matcher": {"name": "a", "typed_config": config}})
        message, faults = read_patch_value("NETWORK_FILTER", "INSERT_FIRST", value)
        if faults:
            assert {fault.code for fault in faults} <= {"too-deep", "wrong-type", "refused-by-envoy"}
        else:
            assert type(message).FromString(message.SerializeToString()) == message
            assert not list(find_broken(message))


@pytest.mark.parametrize("levels", [1, 10, 25])
def test_ordinarily_nested_metadata_is_accepted(levels: int) -> None:
    _, faults = read_patch_value("CLUSTER", "MERGE", {"metadata": {"filter_metadata": {"a": _nested(levels)}}})
    assert not faults


@pytest.mark.parametrize("apply_to", ["LISTENER_FILTER", "NETWORK_FILTER", "HTTP_FILTER"])
def test_added_filter_needs_a_configuration(apply_to: str) -> None:
    value = {"name": "envoy.filters.listener.proxy_protocol"}
    assert read_patch_value(apply_to, "INSERT_FIRST", value)[1]
    assert not read_patch_value(apply_to, "MERGE", value)[1]


@pytest.mark.parametrize(
    ("apply_to", "value"),
    [
        ("CLUSTER", {"metadata": {"filter_metadata": {"a": {f"k{n}": [n] for n in range(5000)}}}}),
        ("CLUSTER", {"metadata": {"filter_metadata": {f"k{n}": {} for n in range(5000)}}}),
        ("ROUTE_CONFIGURATION", {"request_headers_to_remove": [f"x-{n}" for n in range(5000)]}),
        ("ROUTE_CONFIGURATION", {"virtual_hosts": [{"name": "a", "domains": ["a"]}] * 2500}),
    ],
    ids=["struct", "structs", "texts", "messages"],
)
def test_large_value_is_read_in_short_steps(apply_to: str, value: dict[str, Any]) -> None:
    assert len(list(read_patch_value_in_steps(apply_to, "MERGE", value))) > 100


def test_values_of_further_patches_are_not_read_after_many_problems() -> None:
    value = {f"unknown{n}": n for n in range(90)}
    patch = {"applyTo": "CLUSTER", "patch": {"operation": "MERGE", "value": value}}
    o = make_filter([patch] * 200)
    problems = list(validate_envoy_filter(o))
    assert len(problems) < 3 * MAX_FAULTS
    assert problems[-1].path.startswith("spec.configPatches[1].patch.value")


@pytest.mark.parametrize("kind", ["FieldMask", "Duration", "Timestamp"])
def test_long_text_of_a_converted_type_is_refused(kind: str) -> None:
    config = {"@type": f"type.googleapis.com/google.protobuf.{kind}", "value": "aB," * 200_000}
    _, (fault,) = read_patch_value("HTTP_FILTER", "ADD", {"name": "a", "typed_config": config})
    assert fault.place == ("typed_config", "value")
    assert fault.text == f"a google.protobuf.{kind} has at most 4096 characters"


def test_key_of_a_megabyte_is_not_copied_for_each_item_below_it() -> None:
    config = {"@type": "type.googleapis.com/google.protobuf.Struct", "value": {"a" * 1_000_000: [1] * 15_000}}
    assert not read_patch_value("HTTP_FILTER", "ADD", {"name": "a", "typed_config": config})[1]


def test_one_type_of_an_object_gets_a_suggestion() -> None:
    url = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua"
    patches = [
        {
            "applyTo": "HTTP_FILTER",
            "patch": {"operation": "ADD", "value": {"name": "a", "typed_config": {"@type": f"{url}{n}"}}},
        }
        for n in range(50)
    ]
    messages = [problem.message for problem in validate_envoy_filter(make_filter(patches))]
    assert [f"did you mean {url}?" in message for message in messages] == [True] + [False] * 49


@pytest.mark.parametrize(
    ("pattern", "codes"),
    [
        (r"^1\.3\d.*(alpha|beta)?$", []),
        (r"(\pL|\d)*" * 20, ["too-complex"]),
        ("(x|y){900}" * 8, ["too-complex"]),
        ("(", ["bad-regex"]),
        ("a" * 257, ["too-long"]),
    ],
)
def test_complex_expression_of_a_version_is_reported(pattern: str, codes: list[str]) -> None:
    match = {"proxy": {"proxyVersion": pattern}}
    patch = {"operation": "MERGE", "value": {"name": "a"}}
    problems = list(validate_envoy_filter(make_filter([{"applyTo": "CLUSTER", "match": match, "patch": patch}])))
    assert [problem.code for problem in problems] == codes
    assert all(problem.path == "spec.configPatches[0].match.proxy.proxyVersion" for problem in problems)

"""Field rules of protoc-gen-validate."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.cluster.v3 import cluster_pb2
from google.protobuf import any_pb2, duration_pb2, json_format, wrappers_pb2
from validate import validate_pb2

from pilot.lib.protobuf.field_rules import rule_of, wrapped

Plain = dict[str, Any]
CLUSTER = cluster_pb2.Cluster.DESCRIPTOR.fields_by_name


def broken(rules: Plain, value: Any, field: str = "name") -> list[str]:
    return list(rule_of(json_format.ParseDict(rules, validate_pb2.FieldRules()), CLUSTER[field])(value))


def seconds(value: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(round(value * 1e9))
    return duration


INTEGERS = ("int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64")


@pytest.mark.parametrize(
    ("rule", "valid", "invalid", "text"),
    [
        ({"gt": 1}, [2, 9], [1, 0], "must be more than 1"),
        ({"gte": 1}, [1, 2], [0], "must be at least 1"),
        ({"lt": 3}, [2, -1], [3, 4], "must be less than 3"),
        ({"lte": 3}, [3, 2], [4], "must be at most 3"),
        ({"gt": 1, "lt": 5}, [2, 4], [1, 5], "must be more than 1 and less than 5"),
        ({"gte": 1, "lte": 5}, [1, 5], [0, 6], "must be at least 1 and at most 5"),
        ({"gte": 3, "lte": 3}, [3], [2, 4], "must be at least 3 and at most 3"),
        ({"gt": 5, "lt": 1}, [6, 0], [1, 3, 5], "must be more than 5 or less than 1"),
        ({"gte": 5, "lte": 1}, [5, 1], [2, 4], "must be at least 5 or at most 1"),
        ({"const": 4}, [4], [3, 0], "must be 4"),
        ({"in": [1, 3]}, [1, 3], [0, 2], "must be one of 1, 3"),
        ({"in": [0]}, [0], [1], "must be one of 0"),
    ],
)
def test_integer_rules(rule: Plain, valid: list[int], invalid: list[int], text: str) -> None:
    for integer_type in INTEGERS:
        assert {(integer_type, value): broken({integer_type: rule}, value) for value in valid} == {
            (integer_type, value): [] for value in valid
        }
        assert {(integer_type, value): broken({integer_type: rule}, value) for value in invalid} == {
            (integer_type, value): [text] for value in invalid
        }


def test_float_and_not_in_rules() -> None:
    for float_type in ("float", "double"):
        assert broken({float_type: {"gt": 0.5}}, 0.75) == []
        assert broken({float_type: {"gt": 0.5}}, 0.5) == ["must be more than 0.5"]
    assert broken({"uint32": {"notIn": [2, 4]}}, 2) == ["must not be 2"]
    assert broken({"uint32": {"notIn": [2, 4]}}, 3) == []
    assert broken({"uint32": {"gte": 3, "in": [7]}}, 1) == ["must be at least 3", "must be one of 7"]
    ignore_empty = {"uint32": {"gte": 3, "ignoreEmpty": True}}
    assert (broken(ignore_empty, 0), broken(ignore_empty, 1), broken(ignore_empty, 3)) == (
        [],
        ["must be at least 3"],
        [],
    )


@pytest.mark.parametrize(
    ("rule", "valid", "invalid", "text"),
    [
        ({"gt": "1s"}, [1.001, 2], [1, 0.999], "must be more than 1s"),
        ({"gte": "0.001s"}, [0.001, 1], [0, 0.000999], "must be at least 0.001s"),
        ({"lt": "2.5s"}, [2.499, 0], [2.5, 3], "must be less than 2.5s"),
        ({"gte": "1s", "lte": "60s"}, [1, 60], [0.5, 61], "must be at least 1s and at most 60s"),
        ({"const": "3.000000001s"}, [3.000000001], [3, 4], "must be 3s"),
        ({"const": "3s"}, [3], [3.5, 0], "must be 3s"),
    ],
)
def test_duration_rules(rule: Plain, valid: list[float], invalid: list[float], text: str) -> None:
    assert [broken({"duration": rule}, seconds(value)) for value in valid] == [[]] * len(valid)
    assert [broken({"duration": rule}, seconds(value)) for value in invalid] == [[text]] * len(invalid)


def test_enum_and_bool_rules() -> None:
    defined_only = {"enum": {"definedOnly": True}}
    assert (broken(defined_only, 2, "lb_policy"), broken(defined_only, 99, "lb_policy")) == (
        [],
        ["LbPolicy has no value 99"],
    )
    assert broken({"enum": {"notIn": [2]}}, 2, "lb_policy") == ["must not be 2"]
    assert broken({"enum": {}}, 99, "lb_policy") == []
    assert broken({"enum": {"const": 2}}, 3, "lb_policy") == ["must be 2"]
    assert (broken({"bool": {"const": True}}, True), broken({"bool": {"const": True}}, False)) == ([], ["must be true"])
    assert (broken({"bool": {"const": False}}, True), broken({"bool": {}}, False)) == (["must be false"], [])


LONG = f"{'a' * 63}.{'b' * 63}.{'c' * 63}.{'d' * 61}"  # 253 characters


@pytest.mark.parametrize(
    ("rule", "valid", "invalid", "text"),
    [
        ({"len": 2}, ["ab", "éé"], ["a", "abc"], "must have 2 characters"),
        ({"minLen": 2}, ["éé", "abc"], ["", "é"], "must have at least 2 characters"),
        ({"maxLen": 2}, ["", "éé"], ["abc"], "must have at most 2 characters"),
        ({"lenBytes": 2}, ["ab", "é"], ["a", "éé"], "must have 2 bytes"),
        ({"minBytes": 2}, ["é", "ab"], ["a"], "must have at least 2 bytes"),
        ({"maxBytes": 2}, ["é", "ab"], ["éa"], "must have at most 2 bytes"),
        ({"pattern": "^a+$"}, ["a", "aa"], ["b"], "'b' does not match ^a+$"),
        ({"prefix": "/"}, ["/", "/a"], ["a/"], "must have the prefix '/'"),
        ({"suffix": "/"}, ["/", "a/"], ["/a"], "must have the suffix '/'"),
        ({"contains": "/"}, ["a/b"], ["ab"], "must contain '/'"),
        ({"notContains": "/"}, ["ab"], ["a/b"], "must not contain '/'"),
        ({"const": "a"}, ["a"], ["b"], "must be 'a'"),
        ({"in": ["a", "b"]}, ["a", "b"], ["c", ""], "must be one of a, b"),
        ({"notIn": ["a"]}, ["b"], ["a"], "must not be 'a'"),
        ({"minLen": 2, "ignoreEmpty": True}, ["", "ab"], ["a"], "must have at least 2 characters"),
        ({"hostname": True}, ["a", "a-b.example.", LONG, f"{LONG}.", "1.2"], ["a_b"], "'a_b' is not a valid hostname"),
        ({"hostname": True}, [], [f"{LONG}e"], f"'{LONG}e' is not a valid hostname"),
        ({"hostname": True}, [], [""], "'' is not a valid hostname"),
        ({"hostname": True}, ["a" * 63], ["a" * 64], f"'{'a' * 64}' is not a valid hostname"),
        ({"hostname": True}, [], ["-a"], "'-a' is not a valid hostname"),
        ({"hostname": True}, [], ["a-"], "'a-' is not a valid hostname"),
        ({"hostname": False}, ["a_b"], [], ""),
        ({"ip": True}, ["10.0.0.1", "::1"], ["a.b"], "'a.b' is not a valid ip"),
        ({"ipv4": True}, ["10.0.0.1"], ["::1"], "'::1' is not a valid ipv4"),
        ({"ipv4": True}, [], ["a"], "'a' is not a valid ipv4"),
        ({"ipv6": True}, ["::1"], ["10.0.0.1"], "'10.0.0.1' is not a valid ipv6"),
        ({"ipv6": True}, [], ["a:b"], "'a:b' is not a valid ipv6"),
        ({"address": True}, ["::1", "10.0.0.1", "a.b"], ["a b"], "'a b' is not a valid address"),
        ({"uri": True}, ["http://a", "urn:x"], ["a/b"], "'a/b' is not a valid uri"),
        (
            {"wellKnownRegex": "HTTP_HEADER_NAME"},
            ["", "x-a", ":path"],
            ["x a"],
            "'x a' does not match ^:?[0-9a-zA-Z!#$%&'*+-.^_|~`]+$",
        ),
        ({"wellKnownRegex": "HTTP_HEADER_NAME", "strict": False}, ["x a", ""], [], ""),
        ({"wellKnownRegex": "HTTP_HEADER_VALUE"}, ["", "a b\t"], [], ""),
        ({"wellKnownRegex": "UNKNOWN"}, ["x a"], [], ""),
    ],
)
def test_string_rules(rule: Plain, valid: list[str], invalid: list[str], text: str) -> None:
    assert [broken({"string": rule}, value) for value in valid] == [[]] * len(valid)
    assert [broken({"string": rule}, value) for value in invalid] == [[text]] * len(invalid)


def test_header_value_rules() -> None:
    value, not_strict = (
        {"string": {"wellKnownRegex": "HTTP_HEADER_VALUE", **more}} for more in ({}, {"strict": False})
    )
    assert broken(value, "a\nb") == [r"'a\nb' does not match ^[^\x00-\x08\x0A-\x1F\x7F]*$"]
    assert broken(value, "a\x01b") == [r"'a\x01b' does not match ^[^\x00-\x08\x0A-\x1F\x7F]*$"]
    assert (broken(not_strict, "a\x01b"), broken(not_strict, "a\rb")) == ([], [r"'a\rb' does not match ^[^\x00\n\r]*$"])
    name = {"string": {"wellKnownRegex": "HTTP_HEADER_NAME", "strict": False}}
    assert broken(name, "a\nb") == [r"'a\nb' does not match ^[^\x00\n\r]*$"]


def test_bytes_rules() -> None:
    assert (broken({"bytes": {"minLen": 2}}, b"a"), broken({"bytes": {"minLen": 2}}, b"ab")) == (
        ["must have at least 2 bytes"],
        [],
    )
    assert (broken({"bytes": {"maxLen": 2}}, b"abc"), broken({"bytes": {"len": 2}}, b"a")) == (
        ["must have at most 2 bytes"],
        ["must have 2 bytes"],
    )
    ignore_empty = {"bytes": {"minLen": 2, "ignoreEmpty": True}}
    too_short = ["must have at least 2 bytes"]
    assert (broken(ignore_empty, b""), broken(ignore_empty, b"a"), broken({"bytes": {"minLen": 2}}, b"")) == (
        [],
        too_short,
        too_short,
    )


def test_list_and_map_rules() -> None:
    item_count = {"repeated": {"minItems": 1, "maxItems": 2}}
    results = [broken(item_count, value) for value in ([], [1], [1, 2], [1, 2, 3])]
    assert results == [["must have at least 1 items"], [], [], ["must have at most 2 items"]]
    unique_items = {"repeated": {"unique": True}}
    assert [broken(unique_items, value) for value in ([1, 2], [1, 2, 1], [1, 1])] == [
        [],
        ["must not have duplicate items"],
        ["must not have duplicate items"],
    ]
    assert [broken({"repeated": {"minItems": 2, "ignoreEmpty": True}}, value) for value in ([], [1])] == [
        [],
        ["must have at least 2 items"],
    ]
    pairs = {"map": {"minPairs": 1, "maxPairs": 2}}
    too_few, too_many = ["must have at least 1 entries"], ["must have at most 2 entries"]
    assert [broken(pairs, dict.fromkeys(value)) for value in ("", "a", "ab", "abc")] == [too_few, [], [], too_many]
    assert [broken({"map": {"minPairs": 2, "ignoreEmpty": True}}, value) for value in ({}, {"a": 1})] == [
        [],
        ["must have at least 2 entries"],
    ]
    members = {"map": {"keys": {"string": {"minLen": 2}}, "values": {"uint32": {"lt": 5}}}}
    assert broken(members, {"a": 1, "bb": 7, "cc": 2}) == [
        "its keys: must have at least 2 characters",
        "its values: must be less than 5",
    ]
    assert broken({"map": {"values": {"enum": {"definedOnly": True}}}}, {"a": 99}) == []
    assert broken(members, {"bb": wrappers_pb2.UInt32Value(value=9)}) == ["its values: must be less than 5"]


def test_any_rules() -> None:
    message = any_pb2.Any(type_url="type.googleapis.com/a")
    assert broken({"any": {"in": ["type.googleapis.com/a"]}}, message) == []
    assert broken({"any": {"in": ["x", "y"]}}, message) == ["must be of one of the types x, y"]
    assert broken({"any": {"notIn": ["type.googleapis.com/a"]}}, message) == [
        "must not be of the type type.googleapis.com/a"
    ]
    assert broken({"any": {"required": True}}, seconds(1)) == []


def test_no_rules_and_wrappers() -> None:
    assert broken({}, "anything") == broken({"timestamp": {"required": True}}, "anything") == []
    assert (wrapped(wrappers_pb2.UInt32Value(value=3)), wrapped(3), wrapped("a")) == (3, 3, "a")
    assert wrapped(seconds(1)) == seconds(1)

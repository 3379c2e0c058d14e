"""Translation of HTTPMatchRequest to RouteMatch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from google.protobuf import json_format

from pilot.config.networking.virtual_service import HTTPMatchRequest
from pilot.envoy.route.route_match import build_match, is_catch_all, matches_proxy


def match(**fields: Any) -> HTTPMatchRequest:
    return msgspec.convert(fields, HTTPMatchRequest)


def match_fields(**fields: Any) -> dict[str, Any]:
    plain: dict[str, Any] = json_format.MessageToDict(build_match(match(**fields)))
    return plain


def test_missing_match_matches_every_request() -> None:
    assert json_format.MessageToDict(build_match(None)) == {"prefix": "/"}


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ({"exact": "/a"}, {"path": "/a"}),
        ({"prefix": "/a"}, {"prefix": "/a"}),
        ({"regex": "/a.*"}, {"safeRegex": {"regex": "/a.*"}}),
        ({}, {"prefix": "/"}),
    ],
)
def test_uri_matches(uri: dict[str, str], expected: dict[str, Any]) -> None:
    assert match_fields(uri=uri) == {**expected, "caseSensitive": True}


def test_uri_matches_ignore_case() -> None:
    assert match_fields(uri={"exact": "/a"}, ignoreUriCase=True) == {"path": "/a", "caseSensitive": False}


def header(name: str, **condition: Any) -> dict[str, Any]:
    return {"name": name, **condition}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"headers": {"x": {"exact": "1"}}}, [header("x", stringMatch={"exact": "1"})]),
        ({"headers": {"x": {"prefix": "1"}}}, [header("x", stringMatch={"prefix": "1"})]),
        ({"headers": {"x": {"regex": "1+"}}}, [header("x", stringMatch={"safeRegex": {"regex": "1+"}})]),
        ({"headers": {"x": {}}}, [header("x", presentMatch=True)]),
        ({"headers": {"x": {"regex": "*"}}}, [header("x", presentMatch=True)]),
        (
            {"withoutHeaders": {"x": {"exact": "1"}}},
            [header("x", stringMatch={"exact": "1"}, invertMatch=True, treatMissingHeaderAsEmpty=True)],
        ),
        ({"withoutHeaders": {"x": {}}}, [header("x", presentMatch=True, invertMatch=True)]),
        ({"method": {"exact": "GET"}}, [header(":method", stringMatch={"exact": "GET"})]),
        ({"authority": {"prefix": "a."}}, [header(":authority", stringMatch={"prefix": "a."})]),
        ({"scheme": {"exact": "https"}}, [header(":scheme", stringMatch={"exact": "https"})]),
        (
            {"headers": {"z": {}, "a": {}}, "withoutHeaders": {"m": {}}, "method": {"exact": "GET"}},
            [
                header("a", presentMatch=True),
                header("m", presentMatch=True, invertMatch=True),
                header("z", presentMatch=True),
                header(":method", stringMatch={"exact": "GET"}),
            ],
        ),
    ],
)
def test_header_matches(fields: dict[str, Any], expected: list[dict[str, Any]]) -> None:
    assert match_fields(**fields)["headers"] == expected


def test_query_parameter_matches() -> None:
    assert match_fields(queryParams={"b": {"exact": "1"}, "a": {}, "c": {"regex": "x+"}})["queryParameters"] == [
        {"name": "a", "presentMatch": True},
        {"name": "b", "stringMatch": {"exact": "1"}},
        {"name": "c", "stringMatch": {"safeRegex": {"regex": "x+"}}},
    ]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("@request.auth.claims.admin", ["payload", "admin"]),
        ("@request.auth.claims.group.id", ["payload", "group", "id"]),
        ("@request.auth.claims[group][id.x]", ["payload", "group", "id.x"]),
        ("@Request.Auth.Claims[a]", ["payload", "a"]),
    ],
)
def test_claim_matches(name: str, path: list[str]) -> None:
    (matcher,) = match_fields(headers={name: {"exact": "v"}})["dynamicMetadata"]
    value = {"stringMatch": {"exact": "v"}}
    assert matcher == {
        "filter": "envoy.filters.http.jwt_authn",
        "path": [{"key": key} for key in path],
        "value": {"orMatch": {"valueMatchers": [{"listMatch": {"oneOf": value}}, value]}},
    }
    assert "headers" not in match_fields(headers={name: {"exact": "v"}})
    assert match_fields(withoutHeaders={name: {"exact": "v"}})["dynamicMetadata"] == [{**matcher, "invert": True}]


@pytest.mark.parametrize("value", [{}, {"regex": "*"}])
def test_claim_presence(value: dict[str, str]) -> None:
    (matcher,) = match_fields(headers={"@request.auth.claims.a": value})["dynamicMetadata"]
    assert matcher["value"] == {"presentMatch": True}


@pytest.mark.parametrize(
    "name", [*(f"@request.auth.claims{rest}" for rest in ("", ".", "[]", "-a")), "request.auth.claims.a"]
)
def test_other_headers_are_not_claims(name: str) -> None:
    assert match_fields(headers={name: {"exact": "v"}})["headers"][0]["name"] == name


SOURCES = [
    ({}, True),
    ({"port": 80}, True),
    ({"port": 81}, False),
    ({"gateways": ["mesh"]}, True),
    ({"gateways": ["ns/gw"]}, False),
    ({"gateways": ["ns/gw", "mesh"]}, True),
    ({"sourceLabels": {"app": "a"}}, True),
    ({"sourceLabels": {"app": "b"}}, False),
    ({"sourceLabels": {"app": "a", "version": "v1"}}, False),
    ({"sourceNamespace": "ns"}, True),
    ({"sourceNamespace": "other"}, False),
    ({"gateways": ["mesh"], "sourceLabels": {"app": "b"}}, True),
]


@pytest.mark.parametrize(("fields", "expected"), SOURCES)
def test_proxy_and_port_matches(fields: dict[str, Any], expected: bool) -> None:
    assert (
        matches_proxy(match(**fields), 80, frozenset(("mesh",)), "ns", frozenset((("app", "a"), ("team", "t"))))
        is expected
    )


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, True),
        ({"uri": {"prefix": "/"}}, True),
        ({"uri": {"regex": ".*"}}, True),
        ({"uri": {"prefix": "/a"}}, False),
        ({"uri": {"exact": "/"}}, False),
        ({"headers": {"x": {}}}, False),
        ({"queryParams": {"x": {}}}, False),
        ({"headers": {"@request.auth.claims.a": {"exact": "1"}}}, False),
        ({"port": 80}, True),
    ],
)
def test_catch_all_matches(fields: dict[str, Any], expected: bool) -> None:
    assert is_catch_all(build_match(match(**fields))) is expected

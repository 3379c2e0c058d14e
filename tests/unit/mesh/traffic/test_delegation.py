"""Merging of delegate routes: a delegate's match must be a subset of the root's, or its route is dropped."""

from __future__ import annotations

import pytest

from pilot.config.networking.virtual_service import (
    Delegate,
    Destination,
    HTTPMatchRequest,
    HTTPRetry,
    HTTPRoute,
    HTTPRouteDestination,
    StringMatch,
)
from pilot.lib.duration import Duration
from pilot.mesh.traffic.delegation import contradicts, merge_match, merge_matches, merge_route, merge_routes

TO = (HTTPRouteDestination(destination=Destination(host="reviews")),)


def prefix(text: str) -> StringMatch:
    return StringMatch(prefix=text)


def exact(text: str) -> StringMatch:
    return StringMatch(exact=text)


def regex(text: str) -> StringMatch:
    return StringMatch(regex=text)


@pytest.mark.parametrize(
    ("root", "leaf", "expected"),
    [
        (prefix("/a"), prefix("/a/b"), False),
        (prefix("/a/b"), prefix("/a"), True),
        (prefix("/a"), exact("/a/b"), False),
        (prefix("/a"), exact("/b"), True),
        (exact("/a"), exact("/a"), False),
        (exact("/a"), exact("/b"), True),
        (exact("/a"), prefix("/a"), True),
        (regex("/a.*"), prefix("/a"), True),
        (prefix("/a"), regex("/a.*"), True),
        (regex("/a.*"), regex("/a.*"), True),
        (None, regex("/a.*"), False),
        (regex("/a.*"), None, False),
    ],
)
def test_contradicting_string_matches(root: StringMatch | None, leaf: StringMatch | None, expected: bool) -> None:
    assert contradicts(HTTPMatchRequest(uri=root), HTTPMatchRequest(uri=leaf)) is expected
    if root is not None and leaf is not None:
        assert contradicts(HTTPMatchRequest(headers={"x": root}), HTTPMatchRequest(headers={"x": leaf})) is expected
        assert (
            contradicts(HTTPMatchRequest(query_params={"x": root}), HTTPMatchRequest(query_params={"x": leaf}))
            is expected
        )


@pytest.mark.parametrize(
    ("root", "leaf", "expected"),
    [
        (HTTPMatchRequest(port=80), HTTPMatchRequest(port=80), False),
        (HTTPMatchRequest(port=80), HTTPMatchRequest(), False),
        (HTTPMatchRequest(port=80), HTTPMatchRequest(port=81), True),
        (HTTPMatchRequest(ignore_uri_case=True), HTTPMatchRequest(), True),
        (HTTPMatchRequest(source_namespace="a"), HTTPMatchRequest(), True),
        (HTTPMatchRequest(), HTTPMatchRequest(source_namespace="a"), False),
        (HTTPMatchRequest(source_labels={"app": "a"}), HTTPMatchRequest(source_labels={"app": "b"}), True),
        (HTTPMatchRequest(source_labels={"app": "a"}), HTTPMatchRequest(source_labels={"v": "1"}), False),
        (HTTPMatchRequest(gateways=("x", "y")), HTTPMatchRequest(gateways=("x",)), False),
        (HTTPMatchRequest(gateways=("x",)), HTTPMatchRequest(gateways=("y",)), True),
        (HTTPMatchRequest(gateways=("x",)), HTTPMatchRequest(gateways=("x", "y")), True),
    ],
)
def test_contradicting_matches(root: HTTPMatchRequest, leaf: HTTPMatchRequest, expected: bool) -> None:
    assert contradicts(root, leaf) is expected


def test_merged_match_is_the_narrower() -> None:
    root = HTTPMatchRequest(name="root", uri=prefix("/a"), headers={"x": exact("1")}, port=80, stat_prefix="s")
    leaf = HTTPMatchRequest(name="leaf", uri=exact("/a/b"), headers={"y": exact("2")})
    assert merge_match(root, leaf) == HTTPMatchRequest(
        name="root-leaf", uri=exact("/a/b"), headers={"x": exact("1"), "y": exact("2")}, port=80, stat_prefix="s"
    )


@pytest.mark.parametrize(
    "match",
    [
        HTTPMatchRequest(uri=exact("/a")),
        HTTPMatchRequest(scheme=exact("http")),
        HTTPMatchRequest(method=exact("GET")),
        HTTPMatchRequest(authority=exact("x")),
        HTTPMatchRequest(port=80),
        HTTPMatchRequest(source_labels={"app": "web"}),
        HTTPMatchRequest(source_namespace="b"),
        HTTPMatchRequest(gateways=("mesh",)),
        HTTPMatchRequest(stat_prefix="s"),
    ],
)
def test_match_merged_with_an_empty_match_is_unchanged(match: HTTPMatchRequest) -> None:
    assert merge_match(match, HTTPMatchRequest()) == merge_match(HTTPMatchRequest(), match) == match


def test_merge_matches_combines_compatible_pairs() -> None:
    root = (HTTPMatchRequest(uri=prefix("/a")), HTTPMatchRequest(uri=prefix("/b")))
    assert merge_matches(root, (HTTPMatchRequest(uri=exact("/a/x")),)) == (HTTPMatchRequest(uri=exact("/a/x")),)
    assert merge_matches(root, (HTTPMatchRequest(method=exact("GET")),)) == tuple(
        HTTPMatchRequest(uri=m.uri, method=exact("GET")) for m in root
    )
    assert merge_matches(root, (HTTPMatchRequest(uri=exact("/a/x")), HTTPMatchRequest(uri=exact("/c")))) is None
    assert merge_matches(root, ()) == root
    assert merge_matches((), root) == root


def test_merged_route_inherits_unset_fields_from_the_root() -> None:
    root = HTTPRoute(name="root", timeout=Duration.of(3), retries=HTTPRetry(attempts=1), delegate=Delegate(name="leaf"))
    merged = merge_route(root, HTTPRoute(name="leaf", route=TO, retries=HTTPRetry(attempts=5)))
    assert merged == HTTPRoute(name="root-leaf", route=TO, timeout=Duration.of(3), retries=HTTPRetry(attempts=5))


def test_delegate_timeout_overrides_the_root() -> None:
    routes = [merge_route(HTTPRoute(timeout=Duration.of(root)), HTTPRoute(timeout=Duration.of(3))) for root in (1, 5)]
    assert [route.timeout for route in routes if route is not None] == [Duration.of(3)] * 2


def test_contradicting_routes_are_dropped() -> None:
    root = HTTPRoute(match=(HTTPMatchRequest(uri=prefix("/a")),), delegate=Delegate(name="leaf"))
    inside, outside = (HTTPRoute(match=(HTTPMatchRequest(uri=prefix(p)),), route=TO) for p in ("/a/b", "/c"))
    assert [r.match[0].uri for r in merge_routes(root, (inside, outside))] == [prefix("/a/b")]

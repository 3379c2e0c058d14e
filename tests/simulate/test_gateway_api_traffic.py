"""The Gateway API table, request by request, through simulated gateway configuration. A real Envoy is tested against it too."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest
from envoy.config.route.v3 import route_components_pb2

from testing.mesh.world import World, proxy, rows_of
from testing.tables.gateway_api_cases import ROWS, objects, request
from tests.simulate.envoy import Envoy, Outcome


@functools.cache
def envoy() -> Envoy:
    world = World()
    world.set(rows_of(objects()))
    simulated = Envoy(world.resources(world.connect(proxy("router", "front-0", "edge", "10.1.0.1", {"app": "front"}))))
    assert not world.failures
    return simulated


def short_name(clusters: str) -> str:
    return re.sub(
        r"outbound\|(\d+)\|\|(\w+)\.(\w+)\.svc\.cluster\.local",
        lambda m: m[2] + ("" if m[3] == "edge" else f".{m[3]}"),
        clusters,
    )


def describe(outcome: Outcome, route: route_components_pb2.Route | None, path: str) -> str:
    """Return a short description of the outcome of a request."""
    if route is None:
        return short_name(outcome.destination) if outcome.destination != "404" else "404"
    if route.HasField("redirect"):
        return " ".join(("redirect", *_redirected(route)))
    if route.HasField("direct_response"):
        return f"answers {route.direct_response.status}"
    return " ".join((short_name(outcome.destination), *_changes(route, path)))


def _redirected(route: route_components_pb2.Route) -> Iterator[str]:
    redirect = route.redirect
    codes = {0: "301", 1: "302", 2: "303", 3: "307", 4: "308"}
    yield codes[redirect.response_code]
    for name, value in (
        ("scheme", redirect.scheme_redirect),
        ("host", redirect.host_redirect),
        ("port", redirect.port_redirect),
        ("path", redirect.path_redirect),
        ("prefix", redirect.prefix_rewrite),
    ):
        if value:
            yield f"{name}={value}"


def _changes(route: route_components_pb2.Route, path: str) -> Iterator[str]:
    action = route.route
    yield from (
        f"{'=' if h.append_action == 2 else '+'}{h.header.key}:{h.header.value}" for h in route.request_headers_to_add
    )
    yield from (f"-{name}" for name in route.request_headers_to_remove)
    yield from (
        f"<{'=' if h.append_action == 2 else '+'}{h.header.key}:{h.header.value}" for h in route.response_headers_to_add
    )
    yield from (f"<-{name}" for name in route.response_headers_to_remove)
    if action.host_rewrite_literal:
        yield f"host={action.host_rewrite_literal}"
    if action.prefix_rewrite:
        yield "path=" + action.prefix_rewrite + path[len(route.match.path_separated_prefix or route.match.prefix) :]
    if action.HasField("regex_rewrite"):
        yield "path=" + re.sub(action.regex_rewrite.pattern.regex, action.regex_rewrite.substitution, path, count=1)
    for mirror in action.request_mirror_policies:
        share = mirror.runtime_fraction.default_value
        whole = {0: 100, 1: 10_000, 2: 1_000_000}[share.denominator]
        yield f"copy={short_name(mirror.cluster)}*{share.numerator / whole:g}"
    if action.timeout.ToMilliseconds():
        yield f"timeout={action.timeout.ToMilliseconds()}ms"
    policy = action.retry_policy
    if policy.retriable_status_codes or policy.HasField("per_try_timeout") or policy.num_retries.value != 2:
        tries = f"retries={policy.num_retries.value}"
        yield tries + (f"*{policy.per_try_timeout.ToMilliseconds()}ms" if policy.HasField("per_try_timeout") else "")
        yield from (f"on={code}" for code in policy.retriable_status_codes)
    if route.name == "a-name":
        yield "named"


@pytest.mark.parametrize(("feature", "line", "expected"), ROWS, ids=[f"{feature} {line}" for feature, line, _ in ROWS])
def test_gateway_api_features(feature: str, line: str, expected: str) -> None:
    parsed = request(line)
    assert describe(*envoy().trace(parsed), parsed.path.partition("?")[0]) == expected, feature


def test_number_of_rows() -> None:
    assert len(ROWS) >= 120
    assert len({feature for feature, _, _ in ROWS}) >= 25

"""Where requests go by the Gateway API, followed through the configuration of a router: the table that a real Envoy is held to as well."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import pytest
from envoy.config.route.v3 import route_components_pb2

from testing.mesh.world import World, proxy, rows_of
from testing.tables.gateway_api_cases import ROWS, objects, request
from tests.simulate.envoy import Answer, Envoy


@functools.cache
def envoy() -> Envoy:
    world = World()
    world.set(rows_of(objects()))
    made = Envoy(world.resources(world.connect(proxy("router", "front-0", "edge", "10.1.0.1", {"app": "front"}))))
    assert not world.failures
    return made


def short(clusters: str) -> str:
    return re.sub(
        r"outbound\|(\d+)\|\|(\w+)\.(\w+)\.svc\.cluster\.local",
        lambda m: m[2] + ("" if m[3] == "edge" else f".{m[3]}"),
        clusters,
    )


def shown(answer: Answer, route: route_components_pb2.Route | None, path: str) -> str:
    """What became of a request, in few words."""
    if route is None:
        return short(answer.went) if answer.went != "404" else "404"
    if route.HasField("redirect"):
        return " ".join(("redirect", *_redirected(route)))
    if route.HasField("direct_response"):
        return f"answers {route.direct_response.status}"
    return " ".join((short(answer.went), *_changes(route, path)))


def _redirected(route: route_components_pb2.Route) -> Iterator[str]:
    said = route.redirect
    codes = {0: "301", 1: "302", 2: "303", 3: "307", 4: "308"}
    yield codes[said.response_code]
    for name, value in (
        ("scheme", said.scheme_redirect),
        ("host", said.host_redirect),
        ("port", said.port_redirect),
        ("path", said.path_redirect),
        ("prefix", said.prefix_rewrite),
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
        yield f"copy={short(mirror.cluster)}*{share.numerator / whole:g}"
    if action.timeout.ToMilliseconds():
        yield f"timeout={action.timeout.ToMilliseconds()}ms"
    policy = action.retry_policy
    if policy.retriable_status_codes or policy.HasField("per_try_timeout") or policy.num_retries.value != 2:
        tries = f"retries={policy.num_retries.value}"
        yield tries + (f"*{policy.per_try_timeout.ToMilliseconds()}ms" if policy.HasField("per_try_timeout") else "")
        yield from (f"on={code}" for code in policy.retriable_status_codes)
    if route.name == "a-name":
        yield "named"


@pytest.mark.parametrize(("feature", "sent", "becomes"), ROWS, ids=[f"{feature} {sent}" for feature, sent, _ in ROWS])
def test_requests_go_where_the_feature_says(feature: str, sent: str, becomes: str) -> None:
    made = request(sent)
    assert shown(*envoy().trace(made), made.path.partition("?")[0]) == becomes, feature


def test_there_are_enough_of_them() -> None:
    assert len(ROWS) >= 120
    assert len({feature for feature, _, _ in ROWS}) >= 25

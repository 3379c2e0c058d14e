"""Services of which no endpoint is ready."""

from __future__ import annotations

import pytest

from testing.mesh.objects import Plain, at, endpoint_slice, make, world
from testing.mesh.problems import problems_of

SERVICE = make("Service", "api", "{clusterIP: 10.96.0.1, selector: {app: api}, ports: [{name: http, port: 80}]}")
READY, NOT_READY = at("10.1.0.1"), at("10.1.0.2", conditions="{ready: false}")
ENDING = at("10.1.0.3", conditions="{ready: false, terminating: true}")


def reports(*objects: Plain) -> list[tuple[str, str]]:
    """Return the EndpointSlices that are reported, and the messages."""
    problems = problems_of(world(*objects))
    return [(f"{p.object.kind.name} {p.object.name}", p.message) for p in problems if p.code == "no-ready-endpoint"]


def test_service_without_a_ready_endpoint_is_reported_once() -> None:
    first = endpoint_slice("api", NOT_READY, at("10.1.0.4", conditions="{ready: false}"), name="api-a")
    other = endpoint_slice("api", at("10.1.0.5", conditions="{ready: false}"), name="api-b")
    assert reports(SERVICE, first, other, endpoint_slice("api", name="api-0")) == [
        ("EndpointSlice api-a", "Service a/api: none of its 3 endpoints is ready, so requests get 503")
    ]
    assert reports(SERVICE, endpoint_slice("api", NOT_READY)) == [
        ("EndpointSlice api-0", "Service a/api: its only endpoint is not ready, so requests get 503")
    ]
    tcp = make("Service", "api", "{clusterIP: 10.96.0.1, selector: {app: api}, ports: [{name: tcp, port: 80}]}")
    assert reports(tcp, endpoint_slice("api", NOT_READY)) == [
        ("EndpointSlice api-0", "Service a/api: its only endpoint is not ready, so connections are closed")
    ]


@pytest.mark.parametrize(
    "slices",
    [
        [],
        [endpoint_slice("api")],
        [endpoint_slice("api", ENDING)],
        [endpoint_slice("api", NOT_READY, READY)],
        [endpoint_slice("api", NOT_READY, name="api-a"), endpoint_slice("api", READY, name="api-b")],
        [endpoint_slice("other", NOT_READY)],
    ],
    ids=["no slice", "no endpoint", "scaled down", "one ready", "ready in another slice", "no Service"],
)
def test_other_services_are_not_reported(slices: list[Plain]) -> None:
    assert reports(SERVICE, *slices) == []

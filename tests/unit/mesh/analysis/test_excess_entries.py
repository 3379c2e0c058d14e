"""ServiceEntries of a namespace that have too many clusters and endpoints together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pilot.config.networking.service_entry import (
    CHAIN_ENDPOINTS,
    CLUSTER_ENDPOINTS,
    HOST_ENDPOINTS,
    PORT_ENDPOINTS,
    ServiceEntry,
    ServicePort,
    count_expanded,
)
from pilot.config.object import ObjectKey
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.auto_addresses import allocated_addresses
from pilot.mesh.registry.endpoints import endpoints
from testing.mesh.objects import make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import proxy

HOSTS, PORTS, ENDPOINTS = 10, 4, 20
EXPANDED = (HOSTS - 1) * HOST_ENDPOINTS + HOSTS * PORTS * (ENDPOINTS + CLUSTER_ENDPOINTS)
SMALL = CLUSTER_ENDPOINTS + PORT_ENDPOINTS
"""The number of endpoints to which the smallest ServiceEntry expands, which has a port that no other one has."""
LIMIT = 3 * EXPANDED + PORTS * PORT_ENDPOINTS + SMALL
"""The number of endpoints to which three of the ServiceEntries expand."""
DAYS = {"first": 3, "second": 4, "third": 5, "fourth": 6}
"""The ServiceEntries of a namespace, and the days on which they were created."""


def entry(name: str, day: int, namespace: str = "tenant") -> dict[str, Any]:
    spec = {
        "hosts": [f"h{n}.{name}.example.com" for n in range(HOSTS)],
        "ports": [{"number": 1000 + n, "name": f"p{n}", "protocol": "HTTP"} for n in range(PORTS)],
        "resolution": "STATIC",
        "endpoints": [{"address": f"192.0.2.{n}"} for n in range(ENDPOINTS)],
    }
    return make("ServiceEntry", name, json.dumps(spec), namespace, day=day)


def test_newest_entries_of_a_namespace_are_ignored_beyond_the_limit() -> None:
    mesh = world(
        *(entry(name, day) for name, day in reversed(DAYS.items())),
        entry("honest", 9, "other"),
        PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(LIMIT),
    )
    small = "{hosts: [a.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: DNS}"
    mesh.apply_objects(make("ServiceEntry", "small", small, "tenant", day=7))

    def served() -> list[str]:
        refs = [ServiceRef(f"h0.{name}.example.com", "tenant") for name in DAYS]
        refs += [ServiceRef("h0.honest.example.com", "other")]
        names = [ref.hostname.split(".")[1] for ref in refs if endpoints(mesh.mesh, ref, 1000)]
        return [*names, *(["small"] if endpoints(mesh.mesh, ServiceRef("a.example.com", "tenant"), 80) else [])]

    def ignored() -> list[tuple[str, str]]:
        return [(p.object.name, p.path) for p in problems_of(mesh) if p.code == "too-large"]

    assert served() == ["first", "second", "third", "honest", "small"]
    assert ignored() == [("fourth", "spec.hosts")]
    mesh.set({("networking.istio.io/ServiceEntry", ObjectKey("tenant", "first")): None})
    assert served() == ["second", "third", "fourth", "honest", "small"]
    assert ignored() == []


def test_ignored_entry_causes_no_work_for_its_hosts() -> None:
    mesh = world(entry("honest", 9, "other"), PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(LIMIT))
    node_id = mesh.connect(proxy("sidecar", "web", "tenant", "10.0.0.1"))
    mesh.resources(node_id)
    problems_of(mesh)
    runs: list[Any] = []
    mesh.mesh.on_run = runs.append
    spec = {
        "hosts": [f"h{n}.example.com" for n in range(1000)],
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
        "resolution": "STATIC",
    }
    mesh.apply_objects(make("ServiceEntry", "large", json.dumps(spec), "tenant"))
    mesh.resources(node_id)
    assert [p.code for p in problems_of(mesh)] == ["too-large"]
    assert len(runs) < 200
    assert not allocated_addresses(mesh.mesh).keys() & {ObjectKey("tenant", "large")}


def test_ignored_entry_does_not_conflict_with_the_protocols_of_another() -> None:
    large = {
        "hosts": ["shared.example.com", *(f"h{n}.example.com" for n in range(1000))],
        "ports": [{"number": 80, "name": "tls", "protocol": "TLS"}],
        "resolution": "DNS",
    }
    small = {**large, "hosts": ["shared.example.com"], "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}
    objects = (
        make("ServiceEntry", "large", json.dumps(large), day=1),
        make("ServiceEntry", "small", json.dumps(small), "other", day=2),
    )
    assert [p.code for p in problems_of(world(*objects))] == ["protocol-conflict"]
    limited = world(*objects, PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(LIMIT))
    assert [p.code for p in problems_of(limited)] == ["too-large"]


@pytest.mark.parametrize(
    ("protocols", "expanded"),
    [
        (["HTTP"], 9 * HOST_ENDPOINTS + 10 * CLUSTER_ENDPOINTS),
        (["TLS"], 9 * HOST_ENDPOINTS + 10 * (CLUSTER_ENDPOINTS + 4 * CHAIN_ENDPOINTS)),
        (
            ["tcp", "grpc", ""],
            9 * HOST_ENDPOINTS + 10 * (3 * CLUSTER_ENDPOINTS + 2 * 4 * CHAIN_ENDPOINTS),
        ),
    ],
)
def test_hosts_ports_and_addresses_of_ports_that_are_not_http_count(protocols: list[str], expanded: int) -> None:
    spec = ServiceEntry(
        hosts=tuple(f"h{n}.example.com" for n in range(10)),
        addresses=tuple(f"192.0.{n}.0/24" for n in range(5)),
        ports=tuple(ServicePort(number, protocol) for number, protocol in enumerate(protocols, 1)),
    )
    assert count_expanded(spec) == expanded


@pytest.mark.parametrize(("hosts", "ports", "ignored"), [(1, 1, 6), (1, 2, 8), (2, 1, 9)])
def test_small_entries_count_too(hosts: int, ports: int, ignored: int) -> None:
    def small(number: int) -> dict[str, Any]:
        names = [f"h{n}.e{number}.example.com" for n in range(hosts)]
        listed = [{"number": 80 + n, "name": f"p{n}", "protocol": "HTTP"} for n in range(ports)]
        return make("ServiceEntry", f"e{number:02}", json.dumps({"hosts": names, "ports": listed, "resolution": "DNS"}))

    limit = 4 * CLUSTER_ENDPOINTS + ports * PORT_ENDPOINTS
    mesh = world(*(small(number) for number in range(10)), PILOT_MAX_SERVICE_ENTRY_ENDPOINTS=str(limit))
    problems = sorted(p.object.name for p in problems_of(mesh) if p.code == "too-large")
    assert problems == [f"e{number:02}" for number in range(10 - ignored, 10)]


def test_entry_that_is_too_large_alone_does_not_exclude_newer_ones() -> None:
    mesh = world(entry("first", 3), entry("second", 4), PILOT_MAX_SERVICE_ENTRY_ENDPOINTS="600")
    mesh.apply_objects(make("ServiceEntry", "small", json.dumps({
        "hosts": ["a.example.com", "b.example.com"], "resolution": "DNS",
        "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}],
    }), "tenant", day=7))  # fmt: skip
    assert sorted(p.object.name for p in problems_of(mesh) if p.code == "too-large") == ["first", "second"]


def test_entries_with_many_filter_chains_are_ignored_beyond_the_limit() -> None:
    spec = {
        "hosts": [f"h{n}.example.com" for n in range(25)],
        "addresses": [f"192.0.{n}.0/24" for n in range(15)],
        "ports": [{"number": 443 + n, "name": f"tls-{n}", "protocol": "TLS"} for n in range(10)],
    }
    mesh = world(*(make("ServiceEntry", name, json.dumps(spec), "tenant", day=day) for name, day in DAYS.items()))
    ignored = [p.object.name for p in problems_of(mesh) if p.code == "too-large"]
    assert sorted(ignored) == ["fourth", "second", "third"]

"""Addresses allocated to the hosts of ServiceEntries."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from testing.mesh.objects import Plain, make, world
from testing.mesh.problems import problems_of
from testing.mesh.world import World, rows_of


def entry(name: str, hosts: str, resolution: str, day: int, more: str = "", **metadata: Any) -> Plain:
    ports = "[{number: 80, name: http, protocol: HTTP}]"
    return make(
        "ServiceEntry",
        name,
        f"{{hosts: [{hosts}], resolution: {resolution}, ports: {ports}{more}}}",
        day=day,
        **metadata,
    )


def addresses(harness: World, host: str) -> tuple[str, ...]:
    entry_service = service(harness.mesh, ServiceRef(host, "a"))
    assert entry_service is not None
    return entry_service.auto_addresses


def test_hosts_get_an_address_pair_oldest_entry_first() -> None:
    harness = world(entry("late", "c.example.com", "DNS", 2), entry("early", "b.example.com, a.example.com", "DNS", 1))
    assert addresses(harness, "b.example.com") == ("240.240.0.1", "2001:2::1")
    assert addresses(harness, "a.example.com") == ("240.240.0.2", "2001:2::2")
    assert addresses(harness, "c.example.com") == ("240.240.0.3", "2001:2::3")


@pytest.mark.parametrize(
    ("host", "resolution", "more", "labels"),
    [
        ("x.example.com", "NONE", "", "{}"),
        ("x.example.com", "DNS", ", addresses: [10.0.0.1]", "{}"),
        ("x.example.com", "DNS", "", "{networking.istio.io/enable-autoallocate-ip: 'False'}"),
        ("*.example.com", "STATIC", ", endpoints: [{address: 10.0.0.9}]", "{}"),
    ],
)
def test_hosts_without_allocated_addresses(host: str, resolution: str, more: str, labels: str) -> None:
    harness = world(entry("x", f"'{host}'", resolution, 1, more, labels=labels), entry("y", "y.example.com", "DNS", 2))
    assert addresses(harness, host) == ()
    assert addresses(harness, "y.example.com")[0] == "240.240.0.1"


def test_dynamic_dns_wildcard_host_gets_addresses() -> None:
    harness = world(entry("x", "'*.example.com'", "DYNAMIC_DNS", 1))
    assert addresses(harness, "*.example.com") == ("240.240.0.1", "2001:2::1")


def test_status_and_user_addresses_are_kept() -> None:
    harness = world(
        entry(
            "late", "x.example.com", "DNS", 3, status={"addresses": [{"host": "x.example.com", "value": "240.240.0.1"}]}
        ),
        entry("fixed", "f.example.com", "DNS", 2, ", addresses: [240.240.0.2]"),
        entry("early", "y.example.com", "DNS", 1),
    )
    assert addresses(harness, "x.example.com") == ("240.240.0.1",)
    assert addresses(harness, "y.example.com") == ("240.240.0.3", "2001:2::1")


def test_no_addresses_when_allocation_is_disabled() -> None:
    harness = world(entry("x", "x.example.com", "DNS", 1), PILOT_ENABLE_IP_AUTOALLOCATE="false")
    assert addresses(harness, "x.example.com") == ()


def test_no_addresses_when_the_prefix_is_exhausted() -> None:
    harness = world(
        *(entry(f"x{i}", f"x{i}.example.com", "DNS", i) for i in (1, 2, 3, 4)),
        PILOT_IP_AUTOALLOCATE_IPV4_PREFIX="240.240.0.0/30",
        PILOT_IP_AUTOALLOCATE_IPV6_PREFIX="2001:2::/126",
    )
    assert addresses(harness, "x3.example.com") == ("240.240.0.3", "2001:2::3")
    assert addresses(harness, "x4.example.com") == ()


def test_port_edit_of_another_entry_does_not_recompute() -> None:
    harness = world(entry("x", "x.example.com", "DNS", 1), entry("y", "y.example.com", "DNS", 2))
    before = addresses(harness, "y.example.com")
    derivations: list[str] = []
    harness.set(
        rows_of(
            [make("ServiceEntry", "x", "{hosts: [x.example.com], resolution: DNS, ports: [{number: 81, name: http}]}")]
        )
    )
    harness.mesh.on_run = lambda node: derivations.append(str(node.fn))
    assert addresses(harness, "y.example.com") == before
    assert "allocated_addresses" not in derivations


def test_one_warning_reports_an_exhausted_prefix() -> None:
    harness = world(
        *(entry(f"x{i}", f"x{i}.example.com", "DNS", i) for i in (1, 2, 3, 4)),
        PILOT_IP_AUTOALLOCATE_IPV4_PREFIX="240.240.0.0/30",
    )
    reports = [p for p in problems_of(harness) if p.code == "exhausted-prefix"]
    assert [p.message for p in reports] == [
        "1 ServiceEntry has no allocated IPv4 address, because the prefix 240.240.0.0/30 is exhausted: "
        "set PILOT_IP_AUTOALLOCATE_IPV4_PREFIX of the control plane to a larger one"
    ]
    harness.set(rows_of([entry("x5", "x5.example.com", "DNS", 5)]))
    reports = [p for p in problems_of(harness) if p.code == "exhausted-prefix"]
    assert [p.message.partition(" no ")[0] for p in reports] == ["2 ServiceEntries have"]

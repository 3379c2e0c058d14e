"""Addresses dealt out to the hosts of ServiceEntries."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from testing.mesh.objects import Plain, make, world
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


def addresses(made: World, host: str) -> tuple[str, ...]:
    found = service(made.mesh, ServiceRef(host, "a"))
    assert found is not None
    return found.auto_addresses


def test_oldest_first_a_pair_for_each_host() -> None:
    made = world(entry("late", "c.example.com", "DNS", 2), entry("early", "b.example.com, a.example.com", "DNS", 1))
    assert addresses(made, "b.example.com") == ("240.240.0.1", "2001:2::1")
    assert addresses(made, "a.example.com") == ("240.240.0.2", "2001:2::2")
    assert addresses(made, "c.example.com") == ("240.240.0.3", "2001:2::3")


@pytest.mark.parametrize(
    ("host", "resolution", "more", "labels"),
    [
        ("x.example.com", "NONE", "", "{}"),
        ("x.example.com", "DNS", ", addresses: [10.0.0.1]", "{}"),
        ("x.example.com", "DNS", "", "{networking.istio.io/enable-autoallocate-ip: 'False'}"),
        ("*.example.com", "STATIC", ", endpoints: [{address: 10.0.0.9}]", "{}"),
    ],
)
def test_none(host: str, resolution: str, more: str, labels: str) -> None:
    made = world(entry("x", f"'{host}'", resolution, 1, more, labels=labels), entry("y", "y.example.com", "DNS", 2))
    assert addresses(made, host) == ()
    assert addresses(made, "y.example.com")[0] == "240.240.0.1"


def test_wildcard_that_dns_answers() -> None:
    made = world(entry("x", "'*.example.com'", "DYNAMIC_DNS", 1))
    assert addresses(made, "*.example.com") == ("240.240.0.1", "2001:2::1")


def test_statuses_and_addresses_that_users_chose_are_kept() -> None:
    made = world(
        entry(
            "late", "x.example.com", "DNS", 3, status={"addresses": [{"host": "x.example.com", "value": "240.240.0.1"}]}
        ),
        entry("fixed", "f.example.com", "DNS", 2, ", addresses: [240.240.0.2]"),
        entry("early", "y.example.com", "DNS", 1),
    )
    assert addresses(made, "x.example.com") == ("240.240.0.1",)
    assert addresses(made, "y.example.com") == ("240.240.0.3", "2001:2::1")


def test_off() -> None:
    made = world(entry("x", "x.example.com", "DNS", 1), PILOT_ENABLE_IP_AUTOALLOCATE="false")
    assert addresses(made, "x.example.com") == ()


def test_a_prefix_that_is_used_up() -> None:
    made = world(
        *(entry(f"x{i}", f"x{i}.example.com", "DNS", i) for i in (1, 2, 3, 4)),
        PILOT_IP_AUTOALLOCATE_IPV4_PREFIX="240.240.0.0/30",
        PILOT_IP_AUTOALLOCATE_IPV6_PREFIX="2001:2::/126",
    )
    assert addresses(made, "x3.example.com") == ("240.240.0.3", "2001:2::3")
    assert addresses(made, "x4.example.com") == ()


def test_another_entry_s_port_changes_nothing() -> None:
    made = world(entry("x", "x.example.com", "DNS", 1), entry("y", "y.example.com", "DNS", 2))
    before = addresses(made, "y.example.com")
    ran: list[str] = []
    made.set(
        rows_of(
            [make("ServiceEntry", "x", "{hosts: [x.example.com], resolution: DNS, ports: [{number: 81, name: http}]}")]
        )
    )
    made.mesh.on_run = lambda node: ran.append(str(node.fn))
    assert addresses(made, "y.example.com") == before
    assert "allocated_addresses" not in ran

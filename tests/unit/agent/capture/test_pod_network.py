"""Addresses, address families and DNS servers of a pod."""

from __future__ import annotations

import ipaddress
import pathlib

import pytest

from pilot.agent.capture import pod_network as network


@pytest.mark.parametrize(
    ("addresses", "dual_stack", "expected"),
    [
        (["10.0.0.1", "fd00::1"], False, [4]),
        (["10.0.0.1", "fd00::1"], True, [4, 6]),
        (["10.0.0.1"], True, [4]),
        (["fd00::1", "10.0.0.1"], False, [4, 6]),
        ([], False, [4]),
    ],
)
def test_captured_families(addresses: list[str], dual_stack: bool, expected: list[int]) -> None:
    families = network.captured_families([ipaddress.ip_address(address) for address in addresses], dual_stack)
    assert [int(family) for family in families] == expected


def test_reading_of_name_servers(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "resolv.conf"
    path.write_text(
        "# nameserver 9.9.9.9\nsearch a b\nnameserver 1.1.1.1\nnameserver fe80::1%eth0\nnameserver\noptions ndots:5\n"
    )
    assert network.read_name_servers(path) == ["1.1.1.1", "fe80::1"]

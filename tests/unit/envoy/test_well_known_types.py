"""Small messages."""

from __future__ import annotations

import ipaddress

import pytest

from pilot.envoy.well_known_types import build_cidr

HOSTS = ("1.2.3.4", "::1", "2001:DB8::5", "::ffff:1.2.3.4", "fe80::1%eth0", "01.2.3.4", "1.2.3", "", "a", "1.2.3.4 ")
SUFFIXES = ("", "/", "/0", "/8", "/32", "/33", "/128", "/129", "/255.0.0.0", "/08", "/0008", "/-1", "/ 8", "/\u0663")


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_ranges_are_those_that_python_parses(host: str, suffix: str) -> None:
    cidr = build_cidr(host + suffix)
    try:
        network = ipaddress.ip_interface(host + suffix)
    except ValueError:
        assert cidr is None
        return
    assert cidr is not None
    assert (cidr.address_prefix, cidr.prefix_len.value) == (str(network.ip), network.network.prefixlen)

"""Ports of the Services that are deployed for Gateways."""

from __future__ import annotations

import pytest

from pilot.config.gateway_api.gateway import Listener
from pilot.mesh.lowering.gateway_api.deployments import build_ports

LISTENERS = [
    Listener(name="web", port=80, protocol="HTTP"),
    Listener(name="s" * 63, port=443, protocol="HTTPS"),
    Listener(name="again", port=443, protocol="HTTPS"),
]


@pytest.mark.parametrize(
    ("quic", "expected"),
    [
        (False, [("s" * 63, 443, "https", "TCP")]),
        (True, [("s" * 63, 443, "https", "TCP"), ("s" * 58 + "-quic", 443, "https", "UDP")]),
    ],
)
def test_https_ports_have_a_udp_port_for_http3(quic: bool, expected: list[tuple[str, int, str, str]]) -> None:
    """Release note 58247."""
    first = [("status-port", 15021, "tcp", "TCP"), ("web", 80, "http", "TCP")]
    assert list(build_ports(LISTENERS, quic)) == [*first, *expected]

"""Addresses and clusters of Envoy's bootstrap."""

from __future__ import annotations

from typing import Any

import pytest

from pilot.agent.envoy.envoy_bootstrap import build_address, build_cluster
from pilot.agent.proxy.server_address import split_address


def at(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def cluster(name: str, kind: str, address: dict[str, Any], **more: Any) -> dict[str, Any]:
    endpoints = [{"lb_endpoints": [{"endpoint": {"address": address}}]}]
    return {
        "name": name,
        "type": kind,
        "connect_timeout": "5s",
        "load_assignment": {"cluster_name": name, "endpoints": endpoints},
        **more,
    }


@pytest.mark.parametrize(
    ("host", "kind"),
    [
        ("10.0.0.1", "STATIC"),
        ("fd00::1", "STATIC"),
        ("localhost", "STRICT_DNS"),
        ("1.example", "STRICT_DNS"),
        ("a.1", "STRICT_DNS"),
    ],
)
def test_cluster_type_by_host(host: str, kind: str) -> None:
    assert build_cluster("a", at(host, 1), http2=False) == cluster("a", kind, at(host, 1))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a:1", ("a", 1)),
        ("[fd00::1]:65535", ("fd00::1", 65535)),
        ("a:0", None),
        ("a:65536", None),
        (":1", None),
        ("a", None),
        ("a:x", None),
    ],
)
def test_parsing_of_addresses(text: str, address: tuple[str, int] | None) -> None:
    if address is None:
        with pytest.raises(ValueError, match="is not host:port"):
            split_address(text)
    else:
        assert split_address(text) == address
        assert build_address(text) == at(*address)

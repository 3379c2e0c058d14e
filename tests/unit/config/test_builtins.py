"""Conversion of structs to protobuf-style JSON."""

from __future__ import annotations

import pytest

from pilot.config.builtins import to_builtins
from pilot.config.mesh.mesh_config import InboundTrafficPolicy, MeshConfig, OutboundTrafficPolicy
from pilot.lib.duration import Duration


def test_defaults_are_omitted() -> None:
    assert to_builtins(MeshConfig(access_log_file="/dev/stdout")) == {"accessLogFile": "/dev/stdout"}


def test_with_defaults_omits_empty_fields() -> None:
    plain = to_builtins(MeshConfig(), with_defaults=True)
    assert plain["connectTimeout"] == "10s"
    assert plain["ingressControllerMode"] == "STRICT"
    assert "accessLogFile" not in plain


def test_zero_duration_is_kept() -> None:
    assert (
        to_builtins(MeshConfig(protocol_detection_timeout=Duration(0)), with_defaults=True)["protocolDetectionTimeout"]
        == "0s"
    )


def test_enum_value_zero_is_omitted() -> None:
    plain = to_builtins(MeshConfig(access_log_encoding="TEXT"), with_defaults=True)
    assert "accessLogEncoding" not in plain
    assert plain["inboundTrafficPolicy"] == {}
    mesh_config = MeshConfig(
        access_log_encoding="JSON",
        inbound_traffic_policy=InboundTrafficPolicy(mode="LOCALHOST"),
        outbound_traffic_policy=OutboundTrafficPolicy(mode="REGISTRY_ONLY"),
    )
    plain = to_builtins(mesh_config, with_defaults=True)
    assert plain["accessLogEncoding"] == "JSON"
    assert plain["inboundTrafficPolicy"] == {"mode": "LOCALHOST"}
    assert plain["outboundTrafficPolicy"] == {}


@pytest.mark.parametrize(
    ("number", "expected_type"),
    [(2.0**53 - 1, int), (2.0**53, float), (1 - 2.0**53, int), (-(2.0**53), float), (1.5, float)],
)
def test_large_floats_stay_floats(number: float, expected_type: type) -> None:
    assert to_builtins(number) == number
    assert type(to_builtins(number)) is expected_type

"""Structs as JSON, as protobuf writes it."""

from __future__ import annotations

import pytest

from pilot.config.builtins import to_builtins
from pilot.config.mesh.mesh_config import InboundTrafficPolicy, MeshConfig, OutboundTrafficPolicy
from pilot.lib.duration import Duration


def test_defaults_are_left_out() -> None:
    assert to_builtins(MeshConfig(access_log_file="/dev/stdout")) == {"accessLogFile": "/dev/stdout"}


def test_the_whole_of_a_message_has_defaults_but_not_what_is_empty() -> None:
    whole = to_builtins(MeshConfig(), with_defaults=True)
    assert whole["connectTimeout"] == "10s"
    assert whole["ingressControllerMode"] == "STRICT"
    assert "accessLogFile" not in whole


def test_a_duration_is_a_message_and_never_empty() -> None:
    assert (
        to_builtins(MeshConfig(protocol_detection_timeout=Duration(0)), with_defaults=True)["protocolDetectionTimeout"]
        == "0s"
    )


def test_the_name_of_number_zero_is_left_out_and_any_other_is_not() -> None:
    whole = to_builtins(MeshConfig(access_log_encoding="TEXT"), with_defaults=True)
    assert "accessLogEncoding" not in whole
    assert whole["inboundTrafficPolicy"] == {}
    other = MeshConfig(
        access_log_encoding="JSON",
        inbound_traffic_policy=InboundTrafficPolicy(mode="LOCALHOST"),
        outbound_traffic_policy=OutboundTrafficPolicy(mode="REGISTRY_ONLY"),
    )
    whole = to_builtins(other, with_defaults=True)
    assert whole["accessLogEncoding"] == "JSON"
    assert whole["inboundTrafficPolicy"] == {"mode": "LOCALHOST"}
    assert whole["outboundTrafficPolicy"] == {}


@pytest.mark.parametrize(
    ("number", "shown"), [(2.0**53 - 1, int), (2.0**53, float), (1 - 2.0**53, int), (-(2.0**53), float), (1.5, float)]
)
def test_numbers_that_floats_cannot_tell_from_their_neighbours_stay_floats(number: float, shown: type) -> None:
    assert to_builtins(number) == number
    assert type(to_builtins(number)) is shown

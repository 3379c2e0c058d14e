"""Ambient settings, each on its own; all are off outside ambient mode."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from pilot.mesh.model import ambient_features as ambient
from pilot.settings.ambient import AmbientSettings

OFF = AmbientSettings(
    enabled=True,
    waypoints=False,
    send_hbone=False,
    listen_hbone=False,
    prefer_hbone=False,
    ingress_waypoints=False,
    multi_network=False,
    multi_network_waypoints=False,
    multi_network_ingress=False,
)


@pytest.mark.parametrize(
    ("feature", "field"),
    [
        (ambient.serves_waypoints, "waypoints"),
        (ambient.sends_hbone, "send_hbone"),
        (ambient.listens_for_hbone, "listen_hbone"),
        (ambient.prefers_hbone, "prefer_hbone"),
        (ambient.ingress_enters_waypoints, "ingress_waypoints"),
        (ambient.uses_double_hbone, "multi_network"),
        (ambient.waypoints_use_double_hbone, "multi_network_waypoints"),
    ],
)
def test_each_setting_requires_ambient_mode(feature: Callable[[AmbientSettings], bool], field: str) -> None:
    on = dataclasses.replace(OFF, **{field: True})
    assert (feature(OFF), feature(on), feature(dataclasses.replace(on, enabled=False))) == (False, True, False)


@pytest.mark.parametrize(
    ("networks", "ingress", "cross"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_gateways_use_double_hbone_with_multi_network(networks: bool, ingress: bool, cross: bool) -> None:
    settings = dataclasses.replace(OFF, multi_network=networks, multi_network_ingress=ingress)
    assert ambient.gateways_use_double_hbone(settings) is cross
    assert not ambient.gateways_use_double_hbone(dataclasses.replace(settings, enabled=False))

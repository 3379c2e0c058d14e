"""The terms for the states of proxies and endpoints."""

from __future__ import annotations

from pilot.debug.terms import endpoint_word
from pilot.mesh.model.endpoint import EndpointHealth


def test_each_state_of_an_endpoint_has_one_word() -> None:
    assert {str(health): endpoint_word(health) for health in EndpointHealth} == {
        "Unknown": "ready",
        "Healthy": "ready",
        "UnHealthy": "not ready",
        "Draining": "draining",
        "Terminating": "terminating",
    }

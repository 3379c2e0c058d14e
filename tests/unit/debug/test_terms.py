"""The terms for the states of proxies and endpoints."""

from __future__ import annotations

from pilot.debug.terms import endpoint_word
from pilot.mesh.model.endpoint import EndpointHealth


def test_each_state_of_an_endpoint_has_one_word() -> None:
    assert {str(health): endpoint_word(health, "ready: false, terminating: true") for health in EndpointHealth} == {
        "Unknown": "ready",
        "Healthy": "ready",
        "UnHealthy": "not ready",
        "Draining": "draining",
        "Terminating": "terminating",
    }


def test_endpoint_terminates_only_if_a_condition_says_so() -> None:
    assert endpoint_word(EndpointHealth.TERMINATING, "ready: false") == "not ready"

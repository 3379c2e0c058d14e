"""Readiness of the proxy."""

from __future__ import annotations

import pytest

from pilot.agent.envoy.admin_client import AdminError
from pilot.agent.status_port.readiness import STATS, Readiness

READY = {
    "server.state": 0,
    "listener_manager.workers_started": 1,
    "cluster_manager.cds.update_success": 1,
    "listener_manager.lds.update_success": 1,
}


class Envoy:
    """Envoy with the statistics that a test sets. None stands for no response."""

    def __init__(self, stats: dict[str, int] | None) -> None:
        self.current, self.requests = stats, list[str]()

    def stats(self, regex: str) -> dict[str, int]:
        self.requests.append(regex)
        if self.current is None:
            raise AdminError("Envoy's admin port does not respond")
        return self.current


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, ""),
        ({"server.state": 2}, "Envoy is not live (state 2)"),
        ({"listener_manager.workers_started": 0}, "Envoy's workers have not started"),
        ({"cluster_manager.cds.update_success": 0}, "Envoy has not received clusters"),
        (
            {"cluster_manager.cds.update_success": 0, "listener_manager.lds.update_success": 0},
            "Envoy has not received clusters and listeners",
        ),
        ({"listener_manager.lds.update_success": 0, "listener_manager.lds.update_rejected": 1}, ""),
        ({"cluster_manager.cds.update_success": 0, "cluster_manager.cds.update_rejected": 1}, ""),
        ({"cluster_manager.cds.update_rejected": 1, "listener_manager.lds.update_rejected": 1}, ""),
    ],
)
def test_readiness_needs_a_live_configured_envoy(changes: dict[str, int], reason: str) -> None:
    assert Readiness(Envoy({**READY, **changes})).failure() == reason


def test_after_first_readiness_only_liveness_is_checked() -> None:
    envoy = Envoy(READY)
    readiness = Readiness(envoy)
    assert readiness.failure() == ""
    envoy.current = {"server.state": 0}
    assert readiness.failure() == ""
    envoy.current = None
    assert readiness.failure() == "Envoy's admin port does not respond"
    assert envoy.requests == [STATS, r"^server\.state$", r"^server\.state$"]


def test_draining_proxy_is_not_ready() -> None:
    readiness = Readiness(Envoy(READY))
    readiness.draining = True
    assert readiness.failure() == "the proxy is draining"

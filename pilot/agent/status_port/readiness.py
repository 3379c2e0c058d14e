"""Readiness of Envoy. It is ready when it is live, its workers have started, and it has received clusters and
listeners."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pilot.agent.envoy.admin_client import AdminError

LIVE = 0
STATS = (
    r"^(server\.state|listener_manager\.workers_started"
    r"|cluster_manager\.cds\.update_(success|rejected)|listener_manager\.lds\.update_(success|rejected))$"
)


class Stats(Protocol):
    def stats(self, regex: str) -> dict[str, int]: ...


class Readiness:
    """The readiness of one proxy.

    `admin` is None if Envoy is disabled. Once `draining` is set, the proxy is never ready again.
    """

    def __init__(self, admin: Stats | None) -> None:
        self._admin, self._is_configured = admin, False
        self.draining = False

    def failure(self) -> str:
        """Return the reason why the proxy is not ready, or "" if it is ready.

        After Envoy has been configured once, only its state is checked.
        """
        if self.draining:
            return "the proxy is draining"
        if self._admin is None:
            return ""
        try:
            stats = self._admin.stats(r"^server\.state$" if self._is_configured else STATS)
        except AdminError as error:
            return str(error)
        if stats.get("server.state", LIVE) != LIVE:  # the usedonly filter omits a state of 0
            return f"Envoy is not live (state {stats['server.state']})"
        if not self._is_configured:
            if missing := _missing_configuration(stats):
                return missing
            self._is_configured = True
        return ""


def _missing_configuration(stats: Mapping[str, int]) -> str:
    """Return the reason why Envoy is not configured, or "" if it is. Rejected updates count as received."""
    updates = {
        "clusters": stats.get("cluster_manager.cds.update_success", 0)
        + stats.get("cluster_manager.cds.update_rejected", 0),
        "listeners": stats.get("listener_manager.lds.update_success", 0)
        + stats.get("listener_manager.lds.update_rejected", 0),
    }
    missing = [kind for kind, count in updates.items() if not count]
    if missing:
        return f"Envoy has not received {' and '.join(missing)}"
    return "" if stats.get("listener_manager.workers_started") else "Envoy's workers have not started"

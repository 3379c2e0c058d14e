"""Whether Envoy can take traffic: it lives, its workers run, and it has been sent clusters and listeners."""

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
    """`admin` is None without an Envoy. `draining`, once set, says no for good."""

    def __init__(self, admin: Stats | None) -> None:
        self._admin, self._configured = admin, False
        self.draining = False

    def reason(self) -> str:
        """Returns why the proxy is not ready, "" where it is. What it has been sent is not asked for again, only whether it lives."""
        if self.draining:
            return "the proxy is draining"
        if self._admin is None:
            return ""
        try:
            stats = self._admin.stats(r"^server\.state$" if self._configured else STATS)
        except AdminError as error:
            return str(error)
        if stats.get("server.state", LIVE) != LIVE:  # 0 is left out by Envoy's filter of what was never set
            return f"Envoy is not live, its state is {stats['server.state']}"
        if not self._configured:
            if missing := _missing(stats):
                return missing
            self._configured = True
        return ""


def _missing(stats: Mapping[str, int]) -> str:
    """Returns what Envoy does not have yet of what it needs; "" where it has all. Configuration that it refused has arrived all the same."""
    received = {
        "clusters": stats.get("cluster_manager.cds.update_success", 0)
        + stats.get("cluster_manager.cds.update_rejected", 0),
        "listeners": stats.get("listener_manager.lds.update_success", 0)
        + stats.get("listener_manager.lds.update_rejected", 0),
    }
    missing = [kind for kind, count in received.items() if not count]
    if missing:
        return f"Envoy has not been sent {' and '.join(missing)}"
    return "" if stats.get("listener_manager.workers_started") else "Envoy's workers have not started"

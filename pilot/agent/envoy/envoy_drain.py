"""Draining of Envoy before it stops."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from pilot.agent.envoy.admin_client import AdminError
from pilot.lib.logging.log import scope

POLL_SECONDS = 1.0
MAX_FAILURES = 5
"""Maximum number of consecutive failures to count the connections. The drain then ends."""
_log = scope("envoy")


class DrainAdmin(Protocol):
    async def post(self, path: str) -> None: ...
    async def stats(self, regex: str) -> dict[str, int]: ...


def drain_path(proxy_type: str) -> str:
    """Return the path of the admin API that starts the drain.

    A sidecar drains only its inbound listeners, so that the application can finish its own requests. Any other proxy
    drains all listeners.
    """
    return (
        "drain_listeners?graceful&skip_exit"
        if proxy_type != "sidecar"
        else "drain_listeners?inboundonly&graceful&skip_exit"
    )


async def drain(
    admin: DrainAdmin,
    proxy_type: str,
    duration: float,
    minimum: float,
    until_idle: bool,
    ignored_ports: Collection[int],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Start draining Envoy and wait until it can be stopped.

    By default, wait for `duration` seconds. With `until_idle`, wait until no connections remain, but for at least
    `minimum` seconds. Connections to `ignored_ports` are not counted.
    """
    try:
        await admin.post(drain_path(proxy_type))
    except AdminError as error:
        _log.warning("cannot start draining Envoy: %s", error)
    if not until_idle:
        _log.info("draining Envoy for %g s", duration)
        await sleep(duration)
        return
    await sleep(minimum)
    failures = 0
    while failures < MAX_FAILURES:
        try:
            connections = count_connections(await admin.stats(r"^listener\..*downstream_cx_active$"), ignored_ports)
            failures = 0
        except AdminError as error:
            failures += 1
            _log.warning("cannot count Envoy's connections: %s", error)
        else:
            if not connections:
                _log.info("no connections remain")
                return
            _log.info("%d connections remain", connections)
        await sleep(POLL_SECONDS)


def count_connections(stats: dict[str, int], ignored_ports: Collection[int]) -> int:
    """Return the number of active downstream connections.

    Connections to the admin listener, to internal listeners and to the ignored ports are not counted. The per-worker
    statistics are ignored because they repeat the totals.
    """
    ignored = tuple(f"_{port}." for port in ignored_ports)
    return sum(
        count
        for name, count in stats.items()
        if not name.startswith(("listener.admin.", "listener.envoy_internal_"))
        and ".worker_" not in name
        and not any(part in name for part in ignored)
    )

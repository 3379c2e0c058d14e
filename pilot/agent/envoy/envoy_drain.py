"""The end of a proxy: clients are told to go, those that are at it may finish, and then Envoy ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

from pilot.agent.envoy.admin_client import AdminError
from pilot.lib.log import scope

POLL_SECONDS = 1.0
MAX_FAILURES = 5
_log = scope("envoy")


class DrainAdmin(Protocol):
    async def post(self, path: str) -> None: ...
    async def stats(self, regex: str) -> dict[str, int]: ...


def drain_path(kind: str) -> str:
    """Returns what Envoy is asked: a sidecar goes on with what its application calls, any other proxy drains everything."""
    return (
        "drain_listeners?graceful&skip_exit" if kind != "sidecar" else "drain_listeners?inboundonly&graceful&skip_exit"
    )


async def drain(
    admin: DrainAdmin,
    kind: str,
    seconds: float,
    minimum: float,
    until_empty: bool,
    own_ports: Collection[int],
    sleep: Callable[[float], Awaitable[None]],
) -> None:
    """Returns when Envoy may end: after `seconds`, or, where `until_empty` is set, once `minimum` seconds have passed and no connection is
    left but those to its own ports."""
    try:
        await admin.post(drain_path(kind))
    except AdminError as error:
        _log.warning("Envoy does not drain: %s", error)
    if not until_empty:
        _log.info("Envoy drains for %g s", seconds)
        await sleep(seconds)
        return
    await sleep(minimum)
    failures = 0
    while failures < MAX_FAILURES:
        try:
            left = count_connections(await admin.stats(r"^listener\..*downstream_cx_active$"), own_ports)
            failures = 0
        except AdminError as error:
            failures += 1
            _log.warning("the connections of Envoy cannot be counted: %s", error)
        else:
            if not left:
                _log.info("Envoy has no connection left")
                return
            _log.info("Envoy has %d connections left", left)
        await sleep(POLL_SECONDS)


def count_connections(stats: dict[str, int], own_ports: Collection[int]) -> int:
    """Returns the number of connections to listeners; those to the admin port, to Envoy's own ports and between its own listeners do not
    count, and the statistics of workers count nothing twice."""
    own = tuple(f"_{port}." for port in own_ports)
    return sum(
        count
        for name, count in stats.items()
        if not name.startswith(("listener.admin.", "listener.envoy_internal_"))
        and ".worker_" not in name
        and not any(part in name for part in own)
    )

"""Draining of Envoy."""

from __future__ import annotations

from pilot.agent.envoy.admin_client import AdminError
from pilot.agent.envoy.envoy_drain import MAX_FAILURES, count_connections, drain, drain_path


class Envoy:
    """Envoy with prepared connection counts. None stands for no response."""

    def __init__(self, *counts: int | None) -> None:
        self.counts, self.posts, self.sleeps = list(counts), list[str](), list[float]()

    async def post(self, path: str) -> None:
        self.posts.append(path)

    async def stats(self, regex: str) -> dict[str, int]:
        count = self.counts.pop(0)
        if count is None:
            raise AdminError("away")
        return {"listener.0.0.0.0_15006.downstream_cx_active": count}

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)

    async def drain(self, kind: str = "sidecar", until_empty: bool = False) -> None:
        await drain(self, kind, 5.0, 2.0, until_empty, (15021, 15090), self.sleep)


async def test_sidecar_drains_inbound_listeners() -> None:
    envoy = Envoy()
    await envoy.drain()
    assert envoy.posts == ["drain_listeners?inboundonly&graceful&skip_exit"]
    assert envoy.sleeps == [5.0]


def test_gateway_drains_all_listeners() -> None:
    assert drain_path("router") == drain_path("waypoint") == "drain_listeners?graceful&skip_exit"


async def test_drain_until_empty_waits_for_connections() -> None:
    envoy = Envoy(3, 1, None, 0)
    await envoy.drain(until_empty=True)
    assert envoy.counts == []
    assert envoy.sleeps == [2.0, 1.0, 1.0, 1.0]


async def test_drain_gives_up_on_an_unresponsive_envoy() -> None:
    envoy = Envoy(*[None] * MAX_FAILURES)
    await envoy.drain(until_empty=True)
    assert envoy.counts == []


def test_internal_connections_are_excluded() -> None:
    stats = {
        "listener.0.0.0.0_15006.downstream_cx_active": 2,
        "listener.0.0.0.0_15006.worker_0.downstream_cx_active": 2,
        "listener.10.0.0.1_8443.downstream_cx_active": 1,
        "listener.0.0.0.0_15021.downstream_cx_active": 5,
        "listener.0.0.0.0_15090.downstream_cx_active": 5,
        "listener.admin.downstream_cx_active": 5,
        "listener.envoy_internal_connect_originate.downstream_cx_active": 5,
    }
    assert count_connections(stats, (15021, 15090)) == 3

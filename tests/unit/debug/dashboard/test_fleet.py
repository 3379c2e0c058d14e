"""Rows of proxies on the dashboard."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.fleet import ProxyRows, snapshot_stream
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_server import FakeConnection, FakeFleet, FakeWatch
from testing.mesh.world import proxy


def connection(name: str, **watches: FakeWatch) -> FakeConnection:
    namespace = name.partition(".")[2]
    node = proxy("sidecar", name.partition(".")[0], namespace, "10.0.0.1")
    return FakeConnection(f"{name}-1", name, node, subscriptions={BY_SHORT_NAME[t]: w for t, w in watches.items()})


@pytest.mark.parametrize(
    ("watch", "state", "error"),
    [
        (FakeWatch(), "synced", ""),
        (FakeWatch(nonce_sent="n2"), "waiting", ""),
        (FakeWatch(nonce_sent="", nonce_acked="", sent_at=0.0), "synced", ""),
        (FakeWatch(nonce_sent="n2", last_error="no"), "error", "cds: no"),
    ],
)
def test_proxy_state(watch: FakeWatch, state: str, error: str) -> None:
    row, sent_at, _ = snapshot_stream(connection("web-0.a", cds=watch))
    assert (row.name, row.namespace, row.state, row.error, sent_at) == ("web-0", "a", state, error, watch.sent_at)


def test_waiting_time_starts_at_the_oldest_unacked_response() -> None:
    watches = {
        "cds": FakeWatch(sent_at=5.0),
        "lds": FakeWatch(nonce_sent="n2", sent_at=4.0),
        "rds": FakeWatch(nonce_sent="n2", sent_at=3.0),
    }
    row, sent_at, _ = snapshot_stream(connection("web-0.a", **watches))
    assert (row.waits_since, sent_at) == (3.0, 5.0)
    snapshot = snapshot_stream(connection("web-0.a", **watches), row)
    assert snapshot.row is row
    watches["rds"].nonce_acked = "n2"
    assert snapshot_stream(connection("web-0.a", **watches), row).row == row._replace(waits_since=4.0)


async def test_poll_returns_only_changes() -> None:
    a, b, c = (connection(name, cds=FakeWatch()) for name in ("a.x", "b.x", "c.x"))
    fleet = FakeFleet(a, b)
    rows = ProxyRows(fleet)
    assert [row.name for row in (await rows.poll()).changed] == ["a", "b"]
    assert rows.waiting == 0
    a.subscriptions[BY_SHORT_NAME["cds"]].nonce_sent = "n2"
    a.activity += 1
    fleet.current = [a, c]
    update = await rows.poll()
    assert ([(row.name, row.state) for row in update.changed], update.gone, rows.waiting) == (
        [("a", "waiting"), ("c", "synced")],
        ["b.x-1"],
        1,
    )
    assert [row["id"] for row in rows.plain()] == ["a.x-1", "c.x-1"]
    fleet.current = []
    assert (await rows.poll()).gone == ["a.x-1", "c.x-1"]
    assert rows.waiting == 0


async def test_idle_proxy_is_not_inspected() -> None:
    idle = connection("a.x", cds=FakeWatch())
    rows = ProxyRows(FakeFleet(idle))
    await rows.poll()
    idle.subscriptions = {}
    assert (await rows.poll()).changed == []
    idle.activity += 1
    assert await rows.poll() == ([], [], 1)


async def test_waiting_counts_connected_unacked_proxies() -> None:
    watches = {name: FakeWatch(nonce_sent="n2") for name in ("a.x", "b.x", "c.x")}
    connections = {name: connection(name, cds=watch) for name, watch in watches.items()}
    fleet = FakeFleet(*connections.values(), connection("d.x", cds=FakeWatch()))
    rows, waiting = ProxyRows(fleet), []
    await rows.poll()
    waiting.append(rows.waiting)
    watches["a.x"].nonce_acked = "n2"
    connections["a.x"].activity += 1
    await rows.poll()
    waiting.append(rows.waiting)
    fleet.current = [item for item in fleet.current if item.id != "b.x-1"]
    await rows.poll()
    waiting.append(rows.waiting)
    assert waiting == [3, 2, 1]

"""Rows of proxies on the dashboard."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard.fleet import UNHEALTHY, ProxyRows, list_proxies, snapshot_stream
from pilot.debug.silence import STALE
from pilot.lib.xds_types import BY_SHORT_NAME
from testing.mesh.debug_server import FakeConnection, FakeFleet, FakeWatch
from testing.mesh.world import proxy

SENT = 1_700_000_000.0


def connection(name: str, **watches: FakeWatch) -> FakeConnection:
    namespace = name.partition(".")[2]
    node = proxy("sidecar", name.partition(".")[0], namespace, "10.0.0.1")
    return FakeConnection(f"{name}-1", name, node, subscriptions={BY_SHORT_NAME[t]: w for t, w in watches.items()})


def unanswered(sent_at: float = SENT) -> FakeWatch:
    return FakeWatch(nonce_sent="n2", sent_at=sent_at)


def rejected(since: float = SENT) -> FakeWatch:
    return FakeWatch(nonce_sent="n2", last_error="no", rejected_since=since)


@pytest.mark.parametrize(
    ("watch", "state", "later", "error"),
    [
        (FakeWatch(), "synced", "synced", ""),
        (unanswered(), "waiting", "stale", ""),
        (FakeWatch(nonce_sent="", nonce_acked="", sent_at=0.0), "synced", "synced", ""),
        (rejected(), "refused", "refused", "cds: no"),
    ],
)
def test_proxy_state(watch: FakeWatch, state: str, later: str, error: str) -> None:
    row, sent_at, *_ = snapshot_stream(connection("web-0.a", cds=watch))
    assert (row.name, row.namespace, row.error, sent_at) == ("web-0", "a", error, watch.sent_at)
    assert (row.state(SENT), row.state(SENT + STALE)) == (state, later)


def test_times_are_those_of_the_oldest_response_without_ack() -> None:
    watches = {"cds": FakeWatch(sent_at=5.0), "lds": unanswered(4.0), "rds": unanswered(3.0)}
    snapshot = snapshot_stream(connection("web-0.a", **watches))
    row = snapshot.row
    assert (row.waits_since, snapshot.sent_at) == (3.0, 5.0)
    assert snapshot_stream(connection("web-0.a", **watches), row).row is row
    watches["rds"].nonce_acked = "n2"
    assert snapshot_stream(connection("web-0.a", **watches), row).row == row._replace(waits_since=4.0)
    both = snapshot_stream(connection("web-0.a", cds=rejected(7.0), lds=rejected(6.0))).row
    assert (both.error_types, both.error_since) == (("cds", "lds"), 6.0)


async def test_summary_counts_states_by_namespace() -> None:
    connections = [
        connection("a.x", cds=FakeWatch()),
        connection("b.x", cds=unanswered()),
        connection("c.y", cds=rejected()),
    ]
    rows = ProxyRows(FakeFleet(*connections))
    await rows.poll()
    assert rows.summary(SENT) == {
        "proxies": 3,
        "refused": 1,
        "stale": 0,
        "waiting": 1,
        "synced": 1,
        "namespaces": {"x": {"proxies": 2, "waiting": 1}, "y": {"proxies": 1, "refused": 1}},
    }
    assert rows.summary(SENT + STALE)["namespaces"]["x"] == {"proxies": 2, "stale": 1}


async def test_poll_follows_connections_and_their_activity() -> None:
    a, b = (connection(name, cds=FakeWatch()) for name in ("a.x", "b.x"))
    fleet = FakeFleet(a, b)
    rows = ProxyRows(fleet)
    await rows.poll()
    a.subscriptions = {BY_SHORT_NAME["cds"]: rejected()}
    await rows.poll()
    assert rows.summary(SENT)["refused"] == 0  # without activity, it is not inspected
    a.activity += 1
    await rows.poll()
    assert [row.id for row in rows.unhealthy(SENT)] == ["a.x-1"]
    assert rows.key_of(rows.unhealthy(SENT)[0]) == "a.x"
    fleet.current = [b, connection("c.y", cds=FakeWatch())]
    await rows.poll()
    summary = rows.summary(SENT)
    assert (summary["refused"], summary["namespaces"]) == (0, {"x": {"proxies": 1}, "y": {"proxies": 1}})
    fleet.current = []
    await rows.poll()
    assert rows.summary(SENT)["namespaces"] == {}


async def test_unhealthy_rows_are_limited_and_worst_first() -> None:
    connections = [connection(f"s{n}.x", cds=unanswered()) for n in range(UNHEALTHY)]
    rows = ProxyRows(
        FakeFleet(*connections, connection("late.x", cds=rejected(9.0)), connection("r.x", cds=rejected(8.0)))
    )
    await rows.poll()
    unhealthy = rows.unhealthy(SENT + STALE)
    assert len(unhealthy) == UNHEALTHY
    assert [row.name for row in unhealthy[:3]] == ["r", "late", "s0"]


@pytest.mark.parametrize(
    ("namespace", "state", "text", "names"),
    [
        ("", "", "", ["c", "b", "a"]),
        ("x", "", "", ["b", "a"]),
        ("", "stale", "", ["b"]),
        ("", "", "C.Y", ["c"]),
        ("x", "refused", "", []),
    ],
)
async def test_list_is_filtered_and_worst_first(namespace: str, state: str, text: str, names: list[str]) -> None:
    fleet = FakeFleet(
        connection("a.x", cds=FakeWatch()), connection("b.x", cds=unanswered()), connection("c.y", cds=rejected())
    )
    answer = await list_proxies(fleet, namespace, state, text, SENT + STALE)
    assert ([row["name"] for row in answer["proxies"]], answer["total"]) == (names, len(names))


async def test_list_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.debug.dashboard.fleet.MOST", 2)
    answer = await list_proxies(FakeFleet(*(connection(f"{n}.x") for n in range(3))), "", "", "", SENT)
    assert (len(answer["proxies"]), answer["total"]) == (2, 3)

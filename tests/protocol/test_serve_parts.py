"""Parts of the xDS server: its options, access reviews, timers and connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import msgspec
import pytest

from pilot.envoy.plans.proxy_plan import proxy_plan
from pilot.lib.duration import Duration, parse_duration
from pilot.lib.log import fields
from pilot.lib.metrics import Metrics
from pilot.mesh.model.proxy import NodeType, Proxy
from pilot.mesh.tables.database import AccountKey, Mesh
from pilot.settings.process import ServeSettings
from pilot.xds import server as server_module
from pilot.xds.ads import _StreamEnd
from pilot.xds.debug_requests import DebugRequestError
from pilot.xds.push import pusher as pusher_module
from pilot.xds.push.connection import Connection, event_fields
from pilot.xds.push.discovery import Discovery
from pilot.xds.push.pusher import CHECK_INTERVAL, HOLD, Pusher
from pilot.xds.push.time_slicer import TimeSlicer
from pilot.xds.push.write_limiter import DEFAULT_LIMITS, Write, write_limits
from pilot.xds.secret_access import SecretAccess
from pilot.xds.server import make_server
from pilot.xds.workload_registration import RegistrationError
from testing.clients.ads import Client, serving
from testing.clients.fleet import CDS
from testing.clients.scripted_stream import delta

PROXY = Proxy(type=NodeType.SIDECAR, id="web-0.a", ips=("10.0.0.1",), dns_domain="", namespace="a", metadata={})


def connected(identity: str = "", **metadata: str) -> Connection:
    proxy = msgspec.structs.replace(PROXY, identity=identity, metadata=metadata)
    return Connection(3, "key", proxy, "10.0.0.1:99", 0.0, delta())


def hours(number: int) -> Duration:
    return parse_duration(f"{number}h")


# -- settings --------------------------------------------------------------------------------------------------------------


def options(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> dict[str, int]:
    given: list[tuple[str, int]] = []

    def server(options: list[tuple[str, int]]) -> Any:
        given.extend(options)
        return SimpleNamespace(add_generic_rpc_handlers=lambda handlers: None)

    monkeypatch.setattr(server_module, "aio", SimpleNamespace(server=server))
    make_server(ServeSettings(**settings), [])
    assert len(dict(given)) == len(given)
    return dict(given)


def test_a_server_has_the_limits_of_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = {
        "grpc.so_reuseport": 0,
        "grpc.http2.bdp_probe": 0,
        "grpc.max_concurrent_streams": 100_000,
        "grpc.server.max_pending_requests": 100_000,
        "grpc.server.max_pending_requests_hard_limit": 100_000,
        "grpc.max_receive_message_length": 4 << 20,
        "grpc.max_send_message_length": -1,
        "grpc.keepalive_time_ms": 30_000,
        "grpc.keepalive_timeout_ms": 10_000,
        "grpc.http2.ping_timeout_ms": 10_000,
        "grpc.keepalive_permit_without_calls": 1,
        "grpc.http2.min_ping_interval_without_data_ms": 15_000,
    }
    assert options(monkeypatch) == usual
    aged = {"grpc.max_connection_age_ms": 7_200_000, "grpc.max_connection_age_grace_ms": 10_000}
    assert options(monkeypatch, max_connection_age=hours(2)) == usual | aged
    nothing, for_ever = parse_duration("0s"), hours(1_000_000)
    found = options(
        monkeypatch, max_streams=5, max_receive_bytes=6, keepalive_interval=nothing, keepalive_timeout=for_ever
    )
    assert {name: value for name, value in found.items() if usual[name] != value} == {
        "grpc.max_concurrent_streams": 5,
        "grpc.server.max_pending_requests": 5,
        "grpc.server.max_pending_requests_hard_limit": 5,
        "grpc.max_receive_message_length": 6,
        "grpc.keepalive_time_ms": 1,
        "grpc.keepalive_timeout_ms": 2**31 - 1,
        "grpc.http2.ping_timeout_ms": 2**31 - 1,
        "grpc.http2.min_ping_interval_without_data_ms": 0,
    }


def test_writes_have_the_limits_of_the_settings() -> None:
    assert write_limits(ServeSettings()) == DEFAULT_LIMITS
    given = ServeSettings(bytes_in_flight=1, stalled_bytes=2, write_timeout=parse_duration("1500ms"))
    assert write_limits(given) == DEFAULT_LIMITS._replace(moving=1, stalled=2, timeout=1.5)
    assert DEFAULT_LIMITS == (32 << 20, 128 << 20, 64 << 10, 0.15, 0.5, 4 << 20, 60.0)


def test_what_cannot_be_registered_says_why_and_whether_it_has_a_place() -> None:
    for not_found in (False, True):
        error = RegistrationError("WorkloadGroup a/b does not exist", not_found)
        assert (str(error), error.not_found) == ("WorkloadGroup a/b does not exist", not_found)
    assert not RegistrationError("why").not_found


# -- who may read secrets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "before", "kept", "seconds", "told"),
    [
        (True, None, True, 300.0, []),
        (False, True, False, 60.0, []),
        (OSError("no route"), True, True, 300.0, ["cannot review whether a/web may read secrets: no route"]),
        (OSError(), None, False, 60.0, ["cannot review whether a/web may read secrets: OSError"]),
    ],
)
async def test_an_answer_about_an_account_holds_for_a_time_and_wakes_its_proxies(
    answer: bool | Exception,
    before: bool | None,
    kept: bool,
    seconds: float,
    told: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    db, account, now = Mesh(), AccountKey("east", "a", "web"), 1000.0
    discovery = Discovery(db, Metrics(), proxy_plan)
    woken: list[Any] = []
    discovery.wake = lambda nodes, reasons, event=0: woken.append(dict(reasons)) or 0  # type: ignore[assignment]
    discovery.commit([(db.secret_access, account, before)], {"secret": 1})
    woken.clear()
    reviewed: list[AccountKey] = []

    async def review(key: AccountKey) -> bool:
        reviewed.append(key)
        if isinstance(answer, Exception):
            raise answer
        return answer

    access = SecretAccess(discovery, review, lambda: now)

    async def request() -> int:
        """Request secrets twice, and return how many reviews that caused."""
        count = len(reviewed)
        for _ in range(2):
            access.on_request(connected(identity="spiffe://cluster.local/ns/a/sa/web", CLUSTER_ID="east"))
        for _ in range(5):
            await asyncio.sleep(0)
        return len(reviewed) - count

    assert (await request(), reviewed) == (1, [account])
    assert (db.secret_access.peek(account), woken, caplog.messages) == (kept, [{"secret": 1}], told)
    now += seconds - 1
    assert await request() == 0
    now += 1
    assert await request() == 1


# -- time ------------------------------------------------------------------------------------------------------------------


class Loop:
    """The timers that were asked for, in the place of those of the event loop."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.timers.append((delay, callback))

    def ring(self) -> float:
        ((delay, callback),) = self.timers
        self.timers.clear()
        callback()
        return delay


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    return made


def pusher() -> Pusher:
    metrics = Metrics()
    return Pusher(Discovery(Mesh(), metrics, proxy_plan), metrics)


def test_writes_are_looked_at_while_there_are_any_and_lost_time_is_not_theirs(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(pusher_module, "time", SimpleNamespace(monotonic=lambda: now))
    made, gone = pusher(), []
    write = Write(10, "peer", lambda: gone.append("given up"), lambda: 0)
    assert made.write_limiter.try_start(write)
    made._schedule_check()
    made._schedule_check()
    for late, counted in ((0.05, 0.05), (0.1, 0.1), (5.0, 0.1), (0.0, 0.0)):
        before, now = made.write_limiter.time, now + late
        assert loop.ring() == CHECK_INTERVAL
        assert made.write_limiter.time - before == pytest.approx(counted)
    made.write_limiter.time += 60.0
    loop.ring()
    assert (gone, loop.timers) == (["given up"], [])
    assert "pilot_xds_write_timeout 1" in made._metrics.exposition().decode().splitlines()
    made._schedule_check()
    assert [delay for delay, _ in loop.timers] == [CHECK_INTERVAL]


def test_what_is_held_is_owed_after_one_to_two_times_the_same_time_and_one_timer_does_for_all(loop: Loop) -> None:
    made, freed = pusher(), list[Any]()

    def holding(name: str, owes: bool) -> Connection:
        connection: Any = connected()
        connection.session = SimpleNamespace(release=lambda: freed.append(name), owes_anything=lambda: owes)
        connection.mark_dirty = lambda now, reasons: freed.append(reasons)
        return connection

    first, second, third = holding("first", True), holding("second", False), holding("third", False)
    made.release_soon(first)
    made.release_soon(second)
    assert (loop.ring(), freed) == (HOLD, [])
    made.release_soon(third)
    assert (loop.ring(), freed) == (HOLD, ["first", {"depdendentresource": 1}, "second"])
    assert (loop.ring(), freed[3:], loop.timers) == (HOLD, ["third"], [])
    made.release_soon(first)
    assert [delay for delay, _ in loop.timers] == [HOLD]


async def test_rounds_double_while_they_are_short_and_have_one_turn_when_they_are_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, rounds, batches = 0.0, list[Callable[[], None]](), list[int]()
    future = asyncio.get_running_loop().create_future
    monkeypatch.setattr(
        asyncio, "get_running_loop", lambda: SimpleNamespace(call_soon=rounds.append, create_future=future)
    )
    turns = TimeSlicer(1.0, lambda: now)
    await turns.wait_turn()
    now = 1.0  # the slice is over: the others wait
    waiting = [asyncio.create_task(turns.wait_turn()) for _ in range(200)]
    await asyncio.sleep(0)
    for seconds in (0.0, *7 * (0.5,), 1.0, 0.5):
        now += seconds
        rounds.pop()()
        await asyncio.sleep(0)
        batches.append(sum(task.done() for task in waiting) - sum(batches))
        assert len(rounds) == 1
    assert batches == [1, 2, 4, 8, 16, 32, 64, 64, 1, 2]
    for task in waiting[195:]:
        task.cancel()
    await asyncio.sleep(0)
    for _ in range(2):
        rounds.pop()()
    assert rounds == []
    await asyncio.gather(*waiting[:195])


# -- connections -----------------------------------------------------------------------------------------------------------


def test_a_proxy_that_takes_nothing_is_told_of_and_its_stream_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    connection, ended = connected(), []
    connection.abort_slow_write()  # a stream that is not served needs no end
    connection.abort = lambda: ended.append("aborted")
    connection.abort_slow_write()
    assert ended == ["aborted"]
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == 2 * [
        (logging.WARNING, "ADS: web-0.a-3 does not read responses, closing its stream")
    ]


async def test_a_type_is_shared_while_several_proxies_read_the_same() -> None:
    async with serving() as server, Client(server) as one:
        server.set("cds/all", a="1")
        await one.ask("cds")
        await one.take()
        [connection] = server.discovery.connections()
        assert not connection.is_shared(CDS)
        async with Client(server) as other:
            await other.ask("cds")
            await other.take()
            assert connection.is_shared(CDS)
        await server.eventually(lambda: not connection.is_shared(CDS))
        assert connection.nodes()
    await server.eventually(lambda: not connection.nodes())


def test_a_peer_is_known_by_its_identity_else_by_its_address() -> None:
    assert connected().peer == "10.0.0.1"
    connection = connected()
    connection.address = "[fd00::1]:99"
    assert connection.peer == "[fd00::1]"


def test_a_revision_counts_as_taken_with_the_response_that_is_of_it() -> None:
    connection = connected()
    connection.mark_acked("x")
    assert connection.acked_revision("x") == -1
    connection.mark_sent("x", 5)
    assert (connection.acked_revision("x"), connection.activity) == (-1, 1)
    connection.mark_acked("x")
    connection.mark_sent("x", 7)
    assert (connection.acked_revision("x"), connection.acked_revision("y")) == (5, -1)
    connection.mark_acked("x")
    assert connection.acked_revision("x") == 7


def watch(sent: str, acked: str, error: str = "") -> Any:
    return SimpleNamespace(nonce_sent=sent, nonce_acked=acked, last_error=error)


def test_events_are_answered_once_nothing_that_was_sent_is_on_its_way() -> None:
    connection = connected()
    assert (event_fields(connection), connection.take_answered_events(), connection.pending_events) == (None, (), ())
    for events, reasons in (((3,), {"config": 1}), ((4, 5), {"config": 2})):
        connection.events = events
        connection.mark_dirty(7.0, reasons)
        assert (connection.is_idle, connection.changed.is_set()) == (False, True)
        assert connection.begin() == 7.0
        assert (connection.busy, connection.events, connection.changed.is_set(), connection.is_idle) == (
            True,
            (),
            False,
            False,
        )
    assert event_fields(connection) == fields(event=5)
    assert connection.take_answered_events() == (), "it is being written"
    connection.busy = False
    subscriptions: dict[str, Any] = {"x": watch("n", "n"), "y": watch("m", "n")}
    connection.session.subscriptions = subscriptions
    assert connection.take_answered_events() == ()
    subscriptions["y"] = watch("m", "n", "no such thing")
    assert (connection.has_nacked, connection.has_acknowledged, connection.is_idle) == (True, True, True)
    assert connection.take_answered_events() == (3, 4, 5)
    assert (connection.take_answered_events(), connection.pending_events) == ((), ())
    subscriptions.update(x=watch("n", ""), y=watch("", ""))
    assert (connection.has_nacked, connection.has_acknowledged) == (False, False)


def test_what_a_proxy_that_goes_has_not_answered_is_told_once() -> None:
    connection = connected()
    connection.events = (1,)
    connection.mark_dirty(7.0, {})
    connection.begin()
    connection.events = (2, 3)
    assert connection.take_unanswered_events() == (1, 2, 3)
    assert (connection.take_unanswered_events(), connection.events, connection.pending_events) == ((), (), ())


def test_a_connection_that_is_finished_wakes_who_writes_to_it() -> None:
    connection = connected()
    assert (connection.finished, connection.changed.is_set()) == (False, False)
    connection.finish()
    assert (connection.finished, connection.changed.is_set()) == (True, True)


async def test_who_aborts_waits_for_nothing_and_who_ends_lets_what_is_written_be_written() -> None:
    async def for_ever() -> None:
        await asyncio.Event().wait()

    for abort in (True, False):
        reader, writer = asyncio.create_task(for_ever()), asyncio.create_task(for_ever())
        ending = _StreamEnd(reader, writer)
        await asyncio.sleep(0)
        (ending.abort if abort else ending.end)()
        await asyncio.sleep(0)
        assert (reader.cancelled(), writer.cancelled(), ending.is_requested) == (True, abort, True)
        writer.cancel()
        assert await ending.wait_for_writer() is False


@pytest.mark.parametrize("type_url", ["istio.io/debug/syncz", "networking.istio.io/v1/Gateway"])
@pytest.mark.parametrize("variant", ["delta", "sotw"])
async def test_a_denied_request_ends_its_stream_with_the_reason(
    type_url: str, variant: str, caplog: pytest.LogCaptureFixture
) -> None:
    error = DebugRequestError(grpc.StatusCode.PERMISSION_DENIED, "not for you")

    def check(identity: str) -> None:
        raise error

    async def ask(type_url: str, names: Any, identity: str) -> Any:
        raise error

    async with (
        serving(answer_debug_request=ask, check_object_access=check) as server,
        Client(server, variant) as client,
    ):
        await client.ask(type_url)
        assert await client.ends() == (grpc.StatusCode.PERMISSION_DENIED, "not for you")
    [record] = [record for record in caplog.records if "denied" in record.getMessage()]
    assert (record.levelno, record.name) == (logging.WARNING, "pilot.ads")
    assert record.getMessage().startswith(f"ADS: denied {type_url} to pod.ns-")

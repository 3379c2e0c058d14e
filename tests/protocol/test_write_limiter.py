"""Tests of the write limiter, on a clock that the test advances."""

from __future__ import annotations

import asyncio
import functools
import itertools

import pytest

from pilot.lib.duration import parse_duration
from pilot.settings.process import ServeSettings
from pilot.xds.push.fair_queue import FairQueue
from pilot.xds.push.write_limiter import DEFAULT_LIMITS, Write, WriteLimiter, WriteLimits, write_limits

LIMITS = WriteLimits(moving=100, stalled=200, small=5, patience=1.0, grace=4.0, timeout=60.0)


class Proxies:
    """Writes by name. `begin` starts or queues one; `active` lists those in progress."""

    def __init__(self, limits: WriteLimits = LIMITS) -> None:
        self.write_limiter = WriteLimiter(limits)
        self.writes: dict[str, Write] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.aborted: list[str] = []
        self.acked_bytes: dict[str, int | None] = {}

    async def begin(self, *names: str, size: int = 50, peer: str | None = None, is_established: bool = False) -> None:
        for name in names:
            abort, acked_bytes = (
                functools.partial(self.aborted.append, name),
                functools.partial(self.acked_bytes.get, name, 0),
            )
            write = self.writes[name] = Write(size, name if peer is None else peer, abort, acked_bytes)
            if not self.write_limiter.try_start(write):
                self.tasks[name] = asyncio.create_task(self.write_limiter.wait(write, is_established))
                await settle()

    @property
    def active(self) -> str:
        return " ".join(name for name, write in self.writes.items() if self._is_active(name, write))

    def _is_active(self, name: str, write: Write) -> bool:
        if name in self.aborted or (name in self.tasks and self.tasks[name].cancelled()):
            return False
        return write.turn is None or (write.turn.done() and not write.turn.cancelled())

    def end(self, *names: str) -> None:
        for name in names:
            self.write_limiter.finish(self.writes.pop(name), succeeded=True)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 8)):
            self.write_limiter.advance(0.125)


async def settle() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_writes_wait_when_room_is_exhausted() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c")
    assert (proxies.active, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("a b", 1, 100)
    proxies.end("a")
    assert (proxies.active, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("b c", 0, 100)
    proxies.end("b", "c")
    assert (len(proxies.write_limiter), proxies.write_limiter.moving.used) == (0, 0)


async def test_cancelled_task_leaves_the_queue_and_frees_its_room() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c", "d", "e")
    proxies.tasks["c"].cancel()
    await settle()
    assert (proxies.active, proxies.write_limiter.waiting) == ("a b", 2)
    proxies.write_limiter.finish(proxies.writes.pop("a"), succeeded=True)
    proxies.tasks["d"].cancel()  # started, but its task has not run yet
    await settle()
    assert (proxies.active, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("b e", 0, 100)


async def test_oversized_write_needs_all_the_room() -> None:
    proxies = Proxies()
    await proxies.begin("a", size=1000)
    await proxies.begin("b", size=6)
    assert proxies.active == "a"
    proxies.end("a")
    await proxies.begin("c", size=1000)
    assert proxies.active == "b"
    proxies.end("b")
    assert proxies.active == "c"


async def test_large_write_is_not_starved_by_smaller_ones() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b")
    await proxies.begin("large", size=1000)
    await proxies.begin("c", size=10)
    proxies.end("a")
    assert proxies.active == "b"
    proxies.end("b")
    assert proxies.active == "large"


async def test_small_writes_never_wait() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c")
    await proxies.begin("small", size=5)
    assert (proxies.active, proxies.write_limiter.moving.used) == ("a b small", 100)
    proxies.end("small")
    assert proxies.write_limiter.moving.used == 100


async def test_peer_gets_three_quarters_of_the_room() -> None:
    proxies = Proxies()
    await proxies.begin("a1", "a2", "a3", "a4", size=25, peer="a")
    await proxies.begin("b", size=25)
    assert proxies.active == "a1 a2 a3 b", "a4 waits for room of its peer and delays no other"
    proxies.end("a1")
    assert (proxies.active, proxies.write_limiter.waiting) == ("a2 a3 a4 b", 0)


async def test_room_of_a_peer_is_accounted_for() -> None:
    proxies = Proxies()
    await proxies.begin("a1", "a2", size=25, peer="a")
    proxies.end("a1")
    await proxies.begin("a3", "a4", "a5", size=25, peer="a")
    assert (proxies.active, proxies.write_limiter.waiting) == ("a2 a3 a4", 1)
    proxies.end("a2", "a3", "a4", "a5")
    assert proxies.write_limiter.moving.used == 0


async def test_peers_take_turns() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("first")
    await proxies.begin(*(f"a{number}" for number in range(9)), peer="a")
    await proxies.begin(*(f"b{number}" for number in range(6)), peer="b")
    order = []
    while proxies.writes:
        (active,) = proxies.active.split()
        order.append(active[0])
        proxies.end(active)
    assert order[0] == "f"
    assert {len(list(group)) for _, group in itertools.groupby(order[1:13])} <= {1, 2, 3}
    assert sorted(order[1:13]) == ["a"] * 6 + ["b"] * 6, "peers with more writes do not delay others"


async def test_stalled_write_frees_its_room() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c", "d")
    proxies.pass_time(0.875)
    assert proxies.active == "a b"
    proxies.pass_time(0.125)
    assert (proxies.active, proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used) == (
        "a b c d",
        100,
        100,
    )
    proxies.end("a")
    assert (proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used, proxies.aborted) == (100, 50, [])


async def test_patience_follows_the_duration_of_writes() -> None:
    proxies = Proxies()
    for _ in range(30):
        await proxies.begin("a")
        proxies.pass_time(0.75)
        proxies.end("a")
    assert 2.0 < proxies.write_limiter.patience < 2.5
    for _ in range(30):
        await proxies.begin("a")
        proxies.pass_time(50)
        proxies.end("a")
    assert proxies.write_limiter.patience == 30.0


async def test_stalled_writes_are_aborted_if_others_need_room() -> None:
    proxies = Proxies()
    for name in "abcdef":
        await proxies.begin(name)
        proxies.pass_time(1)
    assert (proxies.active, proxies.aborted) == ("a b c d e f", []), "two still use moving room, because no write waits"
    await proxies.begin("g")
    proxies.pass_time(0.125)
    assert proxies.aborted == ["a", "b"], "one for each of the two that need room"
    assert proxies.active == "c d e f g"
    assert proxies.write_limiter.stalled.used == 200
    proxies.write_limiter.finish(proxies.writes.pop("a"), succeeded=False)  # by its stream
    assert proxies.write_limiter.stalled.used == 200


async def test_no_write_is_aborted_within_its_grace_period() -> None:
    proxies = Proxies()
    await proxies.begin(*"abcdefgh")
    proxies.pass_time(3.875)
    assert (proxies.aborted, proxies.write_limiter.waiting) == ([], 2)
    proxies.pass_time(0.125)
    assert proxies.aborted == ["a", "b"]
    assert proxies.write_limiter.waiting == 0


async def test_large_response_gets_a_longer_grace_period() -> None:
    proxies = Proxies(LIMITS._replace(slowest=10))
    await proxies.begin("large", size=60)
    await proxies.begin("a", "b", "c", "d", "e", "f", size=40)
    proxies.pass_time(5.875)
    assert "large" not in proxies.aborted
    assert proxies.aborted, "the others are aborted after four seconds"


async def test_slow_write_with_progress_is_not_aborted() -> None:
    proxies = Proxies(LIMITS._replace(timeout=10.0))
    await proxies.begin(*"abcdefghi", size=50)
    proxies.pass_time(1)
    proxies.acked_bytes |= {"a": 15, "b": 14}  # of 50 bytes in 10 seconds, 15 within the three after the first
    proxies.pass_time(3)
    assert proxies.aborted == ["b"]


async def test_write_with_unknown_progress_gets_a_long_grace_period() -> None:
    proxies = Proxies()
    proxies.acked_bytes |= dict.fromkeys("abcdefgh")
    await proxies.begin(*"abcdefgh", size=50)
    proxies.pass_time(39.875)
    assert proxies.aborted == []
    proxies.pass_time(0.125)
    assert proxies.aborted == ["a", "b"]


async def test_progress_may_become_available_later() -> None:
    proxies = Proxies(LIMITS._replace(stalled=100))
    proxies.acked_bytes |= dict.fromkeys("ab")
    await proxies.begin(*"abcde")
    proxies.pass_time(1)
    proxies.acked_bytes |= dict.fromkeys("ab", 0)
    proxies.pass_time(38.875)
    assert proxies.aborted == [], "the progress since then is unknown"
    proxies.pass_time(0.125)
    assert proxies.aborted == ["a", "b"]


async def test_peer_with_most_stalled_bytes_is_aborted_first() -> None:
    proxies = Proxies(LIMITS._replace(moving=1000))
    await proxies.begin("slow", size=20)
    await proxies.begin("a1", "a2", "a3", size=33, peer="a")
    proxies.pass_time(5)
    await proxies.begin("b1", "b2", size=45, peer="b")
    await proxies.begin("c", size=990)
    proxies.pass_time(1)
    assert proxies.aborted == ["a1"], "not the oldest write"


async def test_peer_gets_three_quarters_of_the_stalled_room() -> None:
    proxies = Proxies(LIMITS._replace(moving=1000))
    await proxies.begin("slow", size=20)
    await proxies.begin("a1", "a2", "a3", "a4", size=40, peer="a")
    await proxies.begin("b", size=990)
    proxies.pass_time(5)
    assert proxies.aborted == ["a1"]
    assert proxies.write_limiter.stalled.used == 140


async def test_stalled_small_writes_are_limited_too() -> None:
    proxies = Proxies(LIMITS._replace(stalled=20))
    await proxies.begin(*"abcdef", size=5)
    proxies.pass_time(3.875)
    assert (proxies.write_limiter.stalled.used, proxies.aborted) == (30, [])
    proxies.pass_time(2)
    await proxies.begin("g", size=5)
    proxies.pass_time(1)
    assert proxies.aborted == ["a", "b", "c"]
    assert proxies.write_limiter.stalled.used == 20


async def test_write_is_aborted_at_its_timeout() -> None:
    proxies = Proxies()
    await proxies.begin("a")
    await proxies.begin("small", size=1)
    proxies.pass_time(59.875)
    assert proxies.aborted == []
    proxies.pass_time(0.125)
    assert (proxies.aborted, proxies.active) == (["a", "small"], "")
    assert (proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used) == (0, 0)


async def test_established_stream_does_not_wait_for_all_new_streams() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin(*"abcdefgh")
    await proxies.begin("established", is_established=True)
    proxies.end("a")
    assert proxies.active == "established"
    proxies.end("established")
    assert proxies.active != ""


async def test_new_streams_get_turns_among_established_ones() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("first")
    await proxies.begin("k1", "k2", "k3", is_established=True)
    await proxies.begin("n1", "n2")
    order = []
    while proxies.writes:
        order.append(proxies.active)
        proxies.end(proxies.active)
    assert [name[0] for name in order] == ["f", "k", "n", "k", "n", "k"]


async def test_new_streams_of_trusted_peers_do_not_wait_for_all_others() -> None:
    proxies = Proxies()
    await proxies.begin("old", peer="reader")
    proxies.end("old")
    await proxies.begin("a", "b", "c", "d", "e", "f")
    await proxies.begin("new1", "new2", "new3", peer="reader")
    assert proxies.active == "a b"
    proxies.end("a")
    assert proxies.active == "b new1"
    proxies.end("b", "new1")
    assert proxies.active == "c new3"  # trusted and unknown peers alternate, and so do oldest and newest


async def test_new_streams_of_trusted_and_unknown_peers_alternate() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("old", peer="reader")
    proxies.end("old")
    await proxies.begin("first", *(f"n{number}" for number in range(4)))
    await proxies.begin(*(f"t{number}" for number in range(4)), peer="reader")
    order = []
    while proxies.writes:
        order.append(proxies.active[0])
        proxies.end(proxies.active)
    assert "".join(order) in ("ftntntntn", "fntntntnt")


async def test_only_the_last_readers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.xds.push.write_limiter._MAX_READERS", 2)
    proxies = Proxies()
    for peer in ("one", "two", "one", "three"):
        await proxies.begin("a", peer=peer)
        proxies.end("a")
    await proxies.begin("a", "b")
    await proxies.begin("forgotten", peer="two")
    await proxies.begin("remembered", peer="three")
    proxies.end("a")
    assert proxies.active == "b remembered"


async def test_only_successful_large_writes_affect_patience_and_trust() -> None:
    proxies = Proxies()
    await proxies.begin("small", size=5)
    await proxies.begin("large")
    proxies.pass_time(3)
    proxies.end("small")
    proxies.write_limiter.finish(proxies.writes.pop("large"), succeeded=False)
    assert proxies.write_limiter.patience == LIMITS.patience
    await proxies.begin("a", "b")
    await proxies.begin("first", peer="unknown")
    await proxies.begin("second", peer="large")
    proxies.end("a")
    assert proxies.active == "b first", "the peer of the failed response is unknown too"


async def test_aborted_peer_is_no_longer_trusted() -> None:
    proxies = Proxies()
    await proxies.begin("old", peer="reader")
    proxies.end("old")
    await proxies.begin("stuck", peer="reader")
    proxies.pass_time(LIMITS.timeout + 1)
    assert proxies.aborted == ["stuck"]
    await proxies.begin("a", "b", "c", "d")
    await proxies.begin("new", peer="reader")
    proxies.end("a")
    assert proxies.active == "b c"


async def test_write_cancelled_at_its_turn_passes_the_turn_on() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin(*"abcd")
    proxies.end("a")  # b starts, but its task has not run yet
    proxies.tasks["b"].cancel()
    await settle()
    assert len(proxies.write_limiter) == 1
    assert "b" not in proxies.active
    (active,) = proxies.active.split()
    (last,) = {"c", "d"} - {active}
    proxies.tasks[last].cancel()
    proxies.end(active)  # the turn comes to a cancelled task
    await settle()
    assert (len(proxies.write_limiter), proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == (0, 0, 0)


def test_two_newest_peers_follow_one_oldest_peer() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in "abcdef":
        queue.push(name, name)
    order = list[str]()
    while (head := queue.peek(lambda _: True)) is not None:
        queue.pop(head, head)
        order.append(head)
    assert "".join(order) == "afebdc"
    assert len(queue) == 0


def test_ineligible_peers_are_skipped() -> None:
    queue: FairQueue[str] = FairQueue()
    for name in "abc":
        queue.push(name, name)
    assert queue.peek(lambda name: name != "a") == "b"
    assert queue.remove("b", "b")
    assert not queue.remove("b", "b")
    assert queue.peek(lambda name: name == "b") is None
    assert len(queue) == 2


def test_limits_come_from_the_settings() -> None:
    settings = ServeSettings(bytes_in_flight=7, stalled_bytes=9, write_timeout=parse_duration("1500ms"))
    assert write_limits(settings) == WriteLimits(moving=7, stalled=9, timeout=1.5)
    assert (
        write_limits(ServeSettings())
        == DEFAULT_LIMITS
        == WriteLimits(
            moving=32 << 20, stalled=128 << 20, small=64 << 10, patience=0.15, grace=0.5, slowest=4 << 20, timeout=60.0
        )
    )

"""Which responses may be written at once, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import functools
import itertools

import pytest

from pilot.lib.duration import parse_duration
from pilot.settings.process import ServeSettings
from pilot.xds.push.fair_queue import FairQueue
from pilot.xds.push.write_limiter import Write, WriteLimiter, WriteLimits, write_limits

LIMITS = WriteLimits(moving=100, stalled=200, small=5, patience=1.0, grace=4.0, timeout=60.0)


class Proxies:
    """Writes by name. `begin` starts one or lets it wait; `going` are those that are written now."""

    def __init__(self, limits: WriteLimits = LIMITS) -> None:
        self.write_limiter = WriteLimiter(limits)
        self.writes: dict[str, Write] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.given_up: list[str] = []
        self.taken: dict[str, int | None] = {}

    async def begin(self, *names: str, size: int = 50, peer: str | None = None, known: bool = False) -> None:
        for name in names:
            give_up, taken = functools.partial(self.given_up.append, name), functools.partial(self.taken.get, name, 0)
            write = self.writes[name] = Write(size, name if peer is None else peer, give_up, taken)
            if not self.write_limiter.try_start(write):
                self.tasks[name] = asyncio.create_task(self.write_limiter.wait(write, known))
                await settled()

    @property
    def going(self) -> str:
        return " ".join(name for name, write in self.writes.items() if self._is_going(name, write))

    def _is_going(self, name: str, write: Write) -> bool:
        if name in self.given_up or (name in self.tasks and self.tasks[name].cancelled()):
            return False
        return write.turn is None or (write.turn.done() and not write.turn.cancelled())

    def end(self, *names: str) -> None:
        for name in names:
            self.write_limiter.finish(self.writes.pop(name), succeeded=True)

    def pass_time(self, seconds: float) -> None:
        for _ in range(round(seconds * 8)):
            self.write_limiter.advance(0.125)


async def settled() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_room_is_taken_until_there_is_none() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c")
    assert (proxies.going, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("a b", 1, 100)
    proxies.end("a")
    assert (proxies.going, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("b c", 0, 100)
    proxies.end("b", "c")
    assert (len(proxies.write_limiter), proxies.write_limiter.moving.used) == (0, 0)


async def test_whoever_goes_leaves_the_line_and_what_had_begun() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c", "d", "e")
    proxies.tasks["c"].cancel()
    await settled()
    assert (proxies.going, proxies.write_limiter.waiting) == ("a b", 2)
    proxies.write_limiter.finish(proxies.writes.pop("a"), succeeded=True)
    proxies.tasks["d"].cancel()  # its turn had come, and it does not know yet
    await settled()
    assert (proxies.going, proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == ("b e", 0, 100)


async def test_one_that_is_larger_than_the_limit_goes_alone() -> None:
    proxies = Proxies()
    await proxies.begin("a", size=1000)
    await proxies.begin("b", size=6)
    assert proxies.going == "a"
    proxies.end("a")
    await proxies.begin("c", size=1000)
    assert proxies.going == "b"
    proxies.end("b")
    assert proxies.going == "c"


async def test_it_is_not_passed_by_smaller_ones_for_ever() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b")
    await proxies.begin("large", size=1000)
    await proxies.begin("c", size=10)
    proxies.end("a")
    assert proxies.going == "b"
    proxies.end("b")
    assert proxies.going == "large"


async def test_small_ones_wait_for_nobody() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c")
    await proxies.begin("small", size=5)
    assert (proxies.going, proxies.write_limiter.moving.used) == ("a b small", 100)
    proxies.end("small")
    assert proxies.write_limiter.moving.used == 100


async def test_a_peer_has_three_quarters_of_the_room() -> None:
    proxies = Proxies()
    await proxies.begin("a1", "a2", "a3", "a4", size=25, peer="a")
    await proxies.begin("b", size=25)
    assert proxies.going == "a1 a2 a3 b", "a4 waits for room of its own peer and holds up no other"
    proxies.end("a1")
    assert (proxies.going, proxies.write_limiter.waiting) == ("a2 a3 a4 b", 0)


async def test_what_a_peer_has_is_counted_until_it_has_nothing() -> None:
    proxies = Proxies()
    await proxies.begin("a1", "a2", size=25, peer="a")
    proxies.end("a1")
    await proxies.begin("a3", "a4", "a5", size=25, peer="a")
    assert (proxies.going, proxies.write_limiter.waiting) == ("a2 a3 a4", 1)
    proxies.end("a2", "a3", "a4", "a5")
    assert proxies.write_limiter.moving.used == 0


async def test_peers_take_turns() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("first")
    await proxies.begin(*(f"a{number}" for number in range(9)), peer="a")
    await proxies.begin(*(f"b{number}" for number in range(6)), peer="b")
    order = []
    while proxies.writes:
        (going,) = proxies.going.split()
        order.append(going[0])
        proxies.end(going)
    assert order[0] == "f"
    assert {len(list(group)) for _, group in itertools.groupby(order[1:13])} <= {1, 2, 3}
    assert sorted(order[1:13]) == ["a"] * 6 + ["b"] * 6, "whoever has more waits for nothing but its own"


async def test_a_write_that_lasts_leaves_its_room_to_others() -> None:
    proxies = Proxies()
    await proxies.begin("a", "b", "c", "d")
    proxies.pass_time(0.875)
    assert proxies.going == "a b"
    proxies.pass_time(0.125)
    assert (proxies.going, proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used) == (
        "a b c d",
        100,
        100,
    )
    proxies.end("a")
    assert (proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used, proxies.given_up) == (100, 50, [])


async def test_where_writes_take_long_that_succeed_there_is_more_patience() -> None:
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


async def test_who_stalls_is_given_up_where_others_wait_and_no_room_is_left() -> None:
    proxies = Proxies()
    for name in "abcdef":
        await proxies.begin(name)
        proxies.pass_time(1)
    assert (proxies.going, proxies.given_up) == ("a b c d e f", []), (
        "two move though they have stalled, for nobody waits"
    )
    await proxies.begin("g")
    proxies.pass_time(0.125)
    assert proxies.given_up == ["a", "b"], "one for each of the two whose room is wanted"
    assert proxies.going == "c d e f g"
    assert proxies.write_limiter.stalled.used == 200
    proxies.write_limiter.finish(proxies.writes.pop("a"), succeeded=False)  # as its stream does
    assert proxies.write_limiter.stalled.used == 200


async def test_nobody_is_given_up_before_its_time() -> None:
    proxies = Proxies()
    await proxies.begin(*"abcdefgh")
    proxies.pass_time(3.875)
    assert (proxies.given_up, proxies.write_limiter.waiting) == ([], 2)
    proxies.pass_time(0.125)
    assert proxies.given_up == ["a", "b"]
    assert proxies.write_limiter.waiting == 0


async def test_a_large_response_is_given_up_later_than_a_small_one() -> None:
    proxies = Proxies(LIMITS._replace(slowest=10))
    await proxies.begin("large", size=60)
    await proxies.begin("a", "b", "c", "d", "e", "f", size=40)
    proxies.pass_time(5.875)
    assert "large" not in proxies.given_up
    assert proxies.given_up, "the others are given up after four seconds"


async def test_who_takes_something_is_not_given_up_though_it_is_slow() -> None:
    proxies = Proxies(LIMITS._replace(timeout=10.0))
    await proxies.begin(*"abcdefghi", size=50)
    proxies.pass_time(1)
    proxies.taken |= {"a": 15, "b": 14}  # of 50 bytes in 10 seconds, 15 within the three after the first
    proxies.pass_time(3)
    assert proxies.given_up == ["b"]


async def test_where_nobody_knows_what_is_taken_a_long_time_decides() -> None:
    proxies = Proxies()
    proxies.taken |= dict.fromkeys("abcdefgh")
    await proxies.begin(*"abcdefgh", size=50)
    proxies.pass_time(39.875)
    assert proxies.given_up == []
    proxies.pass_time(0.125)
    assert proxies.given_up == ["a", "b"]


async def test_what_is_taken_may_be_known_later() -> None:
    proxies = Proxies(LIMITS._replace(stalled=100))
    proxies.taken |= dict.fromkeys("ab")
    await proxies.begin(*"abcde")
    proxies.pass_time(1)
    proxies.taken |= dict.fromkeys("ab", 0)
    proxies.pass_time(38.875)
    assert proxies.given_up == [], "nobody knows how much was taken since"
    proxies.pass_time(0.125)
    assert proxies.given_up == ["a", "b"]


async def test_the_peer_that_stalls_most_pays() -> None:
    proxies = Proxies(LIMITS._replace(moving=1000))
    await proxies.begin("slow", size=20)
    await proxies.begin("a1", "a2", "a3", size=33, peer="a")
    proxies.pass_time(5)
    await proxies.begin("b1", "b2", size=45, peer="b")
    await proxies.begin("c", size=990)
    proxies.pass_time(1)
    assert proxies.given_up == ["a1"], "not the one that is the oldest"


async def test_a_peer_stalls_in_three_quarters_of_the_room() -> None:
    proxies = Proxies(LIMITS._replace(moving=1000))
    await proxies.begin("slow", size=20)
    await proxies.begin("a1", "a2", "a3", "a4", size=40, peer="a")
    await proxies.begin("b", size=990)
    proxies.pass_time(5)
    assert proxies.given_up == ["a1"]
    assert proxies.write_limiter.stalled.used == 140


async def test_small_ones_that_stall_are_bounded_too() -> None:
    proxies = Proxies(LIMITS._replace(stalled=20))
    await proxies.begin(*"abcdef", size=5)
    proxies.pass_time(3.875)
    assert (proxies.write_limiter.stalled.used, proxies.given_up) == (30, [])
    proxies.pass_time(2)
    await proxies.begin("g", size=5)
    proxies.pass_time(1)
    assert proxies.given_up == ["a", "b", "c"]
    assert proxies.write_limiter.stalled.used == 20


async def test_a_write_that_takes_too_long_is_given_up_in_any_case() -> None:
    proxies = Proxies()
    await proxies.begin("a")
    await proxies.begin("small", size=1)
    proxies.pass_time(59.875)
    assert proxies.given_up == []
    proxies.pass_time(0.125)
    assert (proxies.given_up, proxies.going) == (["a", "small"], "")
    assert (proxies.write_limiter.moving.used, proxies.write_limiter.stalled.used) == (0, 0)


async def test_who_has_acknowledged_something_does_not_wait_for_all_newcomers() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin(*"abcdefgh")
    await proxies.begin("known", known=True)
    proxies.end("a")
    assert proxies.going == "known"
    proxies.end("known")
    assert proxies.going != ""


async def test_newcomers_get_their_turn_while_known_ones_wait() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("first")
    await proxies.begin("k1", "k2", "k3", known=True)
    await proxies.begin("n1", "n2")
    order = []
    while proxies.writes:
        order.append(proxies.going)
        proxies.end(proxies.going)
    assert [name[0] for name in order] == ["f", "k", "n", "k", "n", "k"]


async def test_newcomers_of_who_has_taken_something_do_not_wait_for_all_others() -> None:
    proxies = Proxies()
    await proxies.begin("old", peer="taker")
    proxies.end("old")
    await proxies.begin("a", "b", "c", "d", "e", "f")
    await proxies.begin("new1", "new2", "new3", peer="taker")
    assert proxies.going == "a b"
    proxies.end("a")
    assert proxies.going == "b new1"
    proxies.end("b", "new1")
    assert proxies.going == "c new3"  # the two kinds alternate, and the oldest and the newest of each


async def test_newcomers_of_both_kinds_alternate() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin("old", peer="taker")
    proxies.end("old")
    await proxies.begin("first", *(f"n{number}" for number in range(4)))
    await proxies.begin(*(f"t{number}" for number in range(4)), peer="taker")
    order = []
    while proxies.writes:
        order.append(proxies.going[0])
        proxies.end(proxies.going)
    assert "".join(order) in ("ftntntntn", "fntntntnt")


async def test_few_takers_are_remembered_the_last_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pilot.xds.push.write_limiter._MAX_READERS", 2)
    proxies = Proxies()
    for peer in ("one", "two", "one", "three"):
        await proxies.begin("a", peer=peer)
        proxies.end("a")
    await proxies.begin("a", "b")
    await proxies.begin("forgotten", peer="two")
    await proxies.begin("remembered", peer="three")
    proxies.end("a")
    assert proxies.going == "b remembered"


async def test_only_large_responses_that_were_taken_say_how_long_others_take() -> None:
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
    assert proxies.going == "b first", "the peer of the failed response is unknown too"


async def test_who_was_given_up_is_trusted_no_more() -> None:
    proxies = Proxies()
    await proxies.begin("old", peer="taker")
    proxies.end("old")
    await proxies.begin("stuck", peer="taker")
    proxies.pass_time(LIMITS.timeout + 1)
    assert proxies.given_up == ["stuck"]
    await proxies.begin("a", "b", "c", "d")
    await proxies.begin("new", peer="taker")
    proxies.end("a")
    assert proxies.going == "b c"


async def test_who_goes_while_it_waits_holds_up_nobody() -> None:
    proxies = Proxies()
    await proxies.begin(*"abcd")
    assert proxies.write_limiter.waiting == 2
    proxies.tasks["c"].cancel()
    await settled()
    assert proxies.write_limiter.waiting == 1
    proxies.end("a")
    assert proxies.going == "b d"


async def test_who_goes_in_the_moment_of_its_turn_gives_it_back() -> None:
    proxies = Proxies(LIMITS._replace(moving=50))
    await proxies.begin(*"abcd")
    proxies.end("a")  # it is the turn of b, who does not know yet
    proxies.tasks["b"].cancel()
    await settled()
    assert len(proxies.write_limiter) == 1
    assert "b" not in proxies.going
    (going,) = proxies.going.split()
    (last,) = {"c", "d"} - {going}
    proxies.tasks[last].cancel()
    proxies.end(going)  # the turn comes to one that is going
    await settled()
    assert (len(proxies.write_limiter), proxies.write_limiter.waiting, proxies.write_limiter.moving.used) == (0, 0, 0)


def test_two_of_the_newest_in_line_come_after_one_of_the_oldest() -> None:
    line: FairQueue[str] = FairQueue()
    for name in "abcdef":
        line.push(name, name)
    order = list[str]()
    while (head := line.peek(lambda _: True)) is not None:
        line.pop(head, head)
        order.append(head)
    assert "".join(order) == "afebdc"
    assert len(line) == 0


def test_who_may_not_is_passed_over() -> None:
    line: FairQueue[str] = FairQueue()
    for name in "abc":
        line.push(name, name)
    assert line.peek(lambda name: name != "a") == "b"
    assert line.remove("b", "b")
    assert not line.remove("b", "b")
    assert line.peek(lambda name: name == "b") is None
    assert len(line) == 2


def test_the_limits_are_those_of_the_settings() -> None:
    settings = ServeSettings(bytes_in_flight=7, stalled_bytes=9, write_timeout=parse_duration("11s"))
    assert write_limits(settings) == WriteLimits(moving=7, stalled=9, timeout=11.0)
    assert (
        write_limits(ServeSettings())
        == WriteLimits()
        == WriteLimits(
            moving=32 << 20, stalled=128 << 20, small=64 << 10, patience=0.15, grace=0.5, slowest=4 << 20, timeout=60.0
        )
    )

"""What a informer asks, tells, waits for and logs, answer by answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import types
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from pilot.kube import informer as follow
from pilot.kube.api_errors import ApiError, Expired, Unreachable
from pilot.kube.informer import Informer, WatchedCollection, WatchOptions
from pilot.kube.list_watch import ObjectChange
from pilot.lib.backoff import Backoff

PODS = WatchedCollection("/api/v1/pods")
Answer = Any
"""Bytes of a list, batches of lines of a watch, or an error."""


def item(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a", "resourceVersion": str(version)}}


def page(revision: int, *items: tuple[str, int], more: str = "") -> bytes:
    return json.dumps(
        {"metadata": {"resourceVersion": str(revision), "continue": more}, "items": [item(*one) for one in items]}
    ).encode()


def line(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": item(name, version)}).encode()


def error_line(code: int) -> bytes:
    return json.dumps(
        {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "Gone", "message": "too old"}}
    ).encode()


def end_of_first(version: int) -> bytes:
    metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode()


class Longest(random.Random):
    """Chooses the largest wait, and the shortest watch."""

    def uniform(self, _: float, most: float) -> float:
        return most

    def randint(self, least: int, most: int) -> int:
        assert most == 2 * least
        return least


class Scripted:
    """A server that gives these answers, one after another; then whoever follows is ended."""

    def __init__(self, *answers: Answer) -> None:
        self._answers, self.asked = list(answers), list[str]()

    async def call(self, method: str, path: str, query: Mapping[str, str], accept: str) -> bytes:
        self.asked.append(f"list {path} {' '.join(f'{k}={v}' for k, v in query.items())}")
        assert (method, accept) == ("GET", "application/json")
        found: bytes = self._next()
        return found

    async def lines(
        self, path: str, query: Mapping[str, str], accept: str, idle: bool = True
    ) -> AsyncGenerator[list[bytes], None]:
        self.asked.append(f"{'watch' if idle else 'stream'} {path} {' '.join(f'{k}={v}' for k, v in query.items())}")
        for batch in self._next():
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def _next(self) -> Any:
        if not self._answers:
            raise asyncio.CancelledError
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Followed:
    """What somebody was told who followed a scripted server, and how long was waited."""

    def __init__(self, *answers: Answer, streams: bool = False, fails: Sequence[int] = ()) -> None:
        self.server, self.told, self.waits = Scripted(*answers), list[str](), list[float]()
        self.failed = 0
        self._fails, self._batches = fails, 0
        pace = WatchOptions(Backoff(1.0, 30.0), streams, on_failure=self._count)
        self.informer = Informer(self.server, PODS, self.receive, pace, Longest())  # type: ignore[arg-type]

    def _count(self) -> None:
        self.failed += 1

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        assert self.informer.receiving
        self._batches += 1
        self.told.append(" ".join(f"{'+' if raw else '-'}{name.name}" for name, raw in changes))
        if self._batches in self._fails:
            raise ZeroDivisionError

    async def sleep(self, seconds: float) -> None:
        assert not self.informer.receiving
        self.waits.append(seconds)

    async def run(self, monkeypatch: pytest.MonkeyPatch) -> Followed:
        with monkeypatch.context() as patch:
            patch.setattr(follow, "asyncio", types.SimpleNamespace(sleep=self.sleep, Event=asyncio.Event))
            with contextlib.suppress(asyncio.CancelledError):
                await self.informer.run()
        return self


LIST = "list /api/v1/pods limit=500"
WATCH = "watch /api/v1/pods watch=true allowWatchBookmarks=true timeoutSeconds=300 resourceVersion="
STREAM = "stream /api/v1/pods watch=true allowWatchBookmarks=true timeoutSeconds=300 sendInitialEvents=true resourceVersionMatch=NotOlderThan"


async def test_pages_are_read_and_then_watched_from_their_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Followed(
        page(3, ("a", 1), ("b", 2), more="next"),
        page(4, ("c", 3)),
        [[line("MODIFIED", "a", 5), b""], [line("ADDED", "d", 6)]],
    )
    await it.run(monkeypatch)
    assert it.server.asked == [LIST, f"{LIST} continue=next", f"{WATCH}4", f"{WATCH}6"]
    assert it.told == ["+a +b", "+c", "+a", "+d"]
    assert it.waits == [0.0]
    assert it.informer.synced.is_set()


async def test_what_expired_is_read_again_at_once_and_then_slower_and_slower(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expired = Expired(410, "Gone", "too old")
    with caplog.at_level(logging.INFO, "pilot.kube"):
        it = await Followed(
            page(4, ("a", 1), ("b", 2)),
            expired,
            page(7, ("a", 1), ("c", 6)),
            expired,
            page(8, ("a", 1), ("c", 6)),
            [[error_line(410)]],
            page(9, ("a", 9)),
            [[line("MODIFIED", "a", 10)], expired],
            page(11, ("a", 10)),
        ).run(monkeypatch)
    assert it.waits == [0.0, 2.0, 4.0, 0.0]
    assert it.server.asked == [
        LIST,
        f"{WATCH}4",
        LIST,
        f"{WATCH}7",
        LIST,
        f"{WATCH}8",
        LIST,
        f"{WATCH}9",
        LIST,
        f"{WATCH}11",
    ]
    assert it.told == ["+a +b", "+c", "-b", "+a", "-c", "+a"]
    assert {r.getMessage() for r in caplog.records} == {"/api/v1/pods: the resource version has expired, listing again"}
    assert len(caplog.records) == 4


async def test_trouble_is_told_once_and_its_end_and_the_server_says_how_long_to_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gone = Unreachable("/api/v1/pods: no route")
    with caplog.at_level(logging.DEBUG, "pilot.kube"):
        it = await Followed(
            gone,
            gone,
            ApiError(429, "TooMany", "later", 9.0),
            page(4, ("a", 1)),
            gone,
            [[line("BOOKMARK", "", 5)]],
            gone,
        ).run(monkeypatch)
    assert it.waits == [1.0, 2.0, 9.0, 8.0, 0.0, 1.0]
    assert it.failed == 5
    assert [r.getMessage() for r in caplog.records] == [
        "/api/v1/pods: no route",
        "429 TooMany: later",
        "/api/v1/pods: reconnected",
        "/api/v1/pods: 1 objects",
        "/api/v1/pods: no route",
        "/api/v1/pods: reconnected",
        "/api/v1/pods: no route",
    ]
    assert it.informer.error == "/api/v1/pods: no route"
    assert it.told == ["+a"]


async def test_watches_that_tell_of_nothing_are_begun_slower_and_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    it = await Followed(page(4), [], [], [[line("BOOKMARK", "", 5)]], []).run(monkeypatch)
    assert it.waits == [1.0, 2.0, 0.0, 1.0]
    assert it.failed == 0
    assert it.server.asked[-1] == f"{WATCH}5"


async def test_a_receiver_that_fails_is_told_everything_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    it = await Followed(
        page(4, ("a", 1), ("b", 2)), [[line("DELETED", "b", 5)]], page(6, ("a", 1), ("b", 6)), fails=(2,)
    ).run(monkeypatch)
    assert it.told == ["+a +b", "-b", "+a +b"]
    assert it.waits == [1.0]
    assert "cannot watch /api/v1/pods" in caplog.text
    assert it.informer.receiving is False


async def test_what_a_failed_receiver_may_have_missed_is_told_as_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    it = await Followed(page(4, ("a", 1)), [[line("ADDED", "b", 5)]], page(6, ("b", 5)), fails=(2,)).run(monkeypatch)
    assert it.told == ["+a", "+b", "+b", "-a"]


@pytest.mark.parametrize(
    ("lines", "told", "revision"),
    [
        ([line("ADDED", "a", 1)], [], 4),
        ([line("MODIFIED", "a", 5), line("MODIFIED", "a", 5)], ["+a"], 5),
        ([line("MODIFIED", "a", 7), line("MODIFIED", "a", 6)], ["+a"], 7),
        ([line("DELETED", "a", 5), line("MODIFIED", "a", 4)], ["-a"], 5),
        ([line("DELETED", "a", 5), line("ADDED", "a", 6), line("DELETED", "a", 5)], ["-a +a"], 6),
        ([line("DELETED", "x", 5)], [], 5),
        ([line("BOOKMARK", "", 9)], [], 9),
        ([line("MODIFIED", "a", 5), error_line(500), line("MODIFIED", "a", 6)], ["+a"], 5),
    ],
)
async def test_what_lines_of_a_watch_tell(
    lines: list[bytes], told: list[str], revision: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = await Followed(page(4, ("a", 1)), [lines]).run(monkeypatch)
    assert it.told == ["+a", *told]
    assert it.server.asked[-1] == f"{WATCH}{revision}"


async def test_so_many_of_the_gone_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "DELETED_CAPACITY", 2)
    gone = [line("DELETED", name, version) for version, name in enumerate("abc", 10)]
    late = [line("MODIFIED", name, 5) for name in "abc"]
    it = await Followed(page(4, ("a", 1), ("b", 1), ("c", 1)), [gone, late]).run(monkeypatch)
    assert it.told == ["+a +b +c", "-a -b -c", "+a"], "the oldest is not known any more"
    came_back = [
        line("DELETED", "a", 10),
        line("ADDED", "a", 11),
        line("DELETED", "b", 12),
        line("DELETED", "a", 13),
        line("DELETED", "c", 14),
    ]
    it = await Followed(page(4, ("a", 1), ("b", 1), ("c", 1)), [came_back, late]).run(monkeypatch)
    assert it.told == ["+a +b +c", "-a +a -b -a -c", "+b"], "a went after b"


async def test_a_stream_of_all_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    first = [[line("ADDED", "a", 1), b""], [line("BOOKMARK", "", 2), line("ADDED", "b", 2), end_of_first(4)]]
    again = [[line("ADDED", "b", 2), end_of_first(8)]]
    it = await Followed(first, Expired(410, "Gone", ""), again, [[line("ADDED", "a", 9)]], streams=True).run(
        monkeypatch
    )
    assert it.told == ["+a", "+b", "-a", "+a"]
    assert it.server.asked == [STREAM, f"{WATCH}4", STREAM, f"{WATCH}8", f"{WATCH}9"]


@pytest.mark.parametrize("code", [400, 403, 404, 405, 422])
async def test_a_server_that_has_no_streams_is_not_asked_for_one_again(
    code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = await Followed(ApiError(code, "No", ""), Unreachable("x"), page(4, ("a", 1)), streams=True).run(monkeypatch)
    assert it.server.asked == [STREAM, LIST, LIST, f"{WATCH}4"]
    assert it.waits == [1.0]


@pytest.mark.parametrize(
    "trouble", [[[error_line(500)]], [[line("ADDED", "a", 1)]], ApiError(401, "No", ""), ApiError(423, "No", "")]
)
async def test_a_stream_that_fails_in_passing_is_asked_for_again(
    trouble: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = await Followed(trouble, [[line("ADDED", "a", 1), end_of_first(4)]], streams=True).run(monkeypatch)
    assert it.server.asked == [STREAM, STREAM, f"{WATCH}4"]
    assert it.told == ["+a"]
    assert it.failed == 1


async def test_who_moves_to_another_collection_is_told_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    it = await Followed(page(4, ("a", 1), ("b", 2))).run(monkeypatch)
    it.informer.watch_collection(WatchedCollection("/api/v2/pods", "x=y", "f=g"))
    it.server._answers = [page(4, ("a", 1))]
    await it.run(monkeypatch)
    assert it.told == ["+a +b", "+a", "-b"]
    query = "labelSelector=x=y fieldSelector=f=g"
    assert it.server.asked[2:] == [
        f"list /api/v2/pods {query} limit=500",
        f"watch /api/v2/pods {query} {WATCH.partition('pods ')[2]}4",
    ]
    await it.informer.clear()
    assert it.told[3:] == ["-a"]
    await it.informer.clear()
    assert it.told[3:] == ["-a"]


async def test_a_server_that_was_restored_from_older_data_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    deleted = [line("DELETED", "a", 10), error_line(410)]
    it = await Followed(
        page(4, ("a", 1), ("b", 2)), [deleted], page(3, ("b", 1)), [[line("ADDED", "a", 5), line("MODIFIED", "b", 6)]]
    ).run(monkeypatch)
    assert it.told == ["+a +b", "-a", "+b", "+a +b"]

"""An informer's requests, notifications, delays and log messages for scripted responses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import pytest

from pilot.kube import informer as informer_module
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
        {"metadata": {"resourceVersion": str(revision), "continue": more}, "items": [item(*entry) for entry in items]}
    ).encode()


def line(kind: str, name: str, version: int) -> bytes:
    return json.dumps({"type": kind, "object": item(name, version)}).encode()


def error_line(code: int) -> bytes:
    return json.dumps(
        {"type": "ERROR", "object": {"kind": "Status", "code": code, "reason": "Gone", "message": "too old"}}
    ).encode()


def initial_events_end(version: int) -> bytes:
    metadata = {"resourceVersion": str(version), "annotations": {"k8s.io/initial-events-end": "true"}}
    return json.dumps({"type": "BOOKMARK", "object": {"metadata": metadata}}).encode()


class BoundaryRandom(random.Random):
    """Random numbers for the longest delay and the shortest watch."""

    def uniform(self, _: float, maximum: float) -> float:
        return maximum

    def randint(self, minimum: int, maximum: int) -> int:
        assert maximum == 2 * minimum
        return minimum


class ScriptedServer:
    """A server with scripted responses, which cancels the informer after the last one."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.requests, self.pauses = list(answers), list[str](), list[float]()

    async def pause(self, seconds: float, spread: float) -> None:
        assert spread == informer_module.RECOVERY_SECONDS
        self.pauses.append(seconds)

    async def call(self, method: str, path: str, query: Mapping[str, str], accept: str, largest: int) -> bytes:
        self.requests.append(f"list {path} {' '.join(f'{k}={v}' for k, v in query.items())}")
        assert (method, accept) == ("GET", "application/json")
        response: bytes = self._next()
        return response

    async def lines(
        self, path: str, query: Mapping[str, str], accept: str, idle: bool = True
    ) -> AsyncGenerator[list[bytes], None]:
        self.requests.append(f"{'watch' if idle else 'stream'} {path} {' '.join(f'{k}={v}' for k, v in query.items())}")
        for batch in self._next():
            if isinstance(batch, Exception):
                raise batch
            yield batch

    def _next(self) -> Any:
        if not self.answers:
            raise asyncio.CancelledError
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class RecordingInformer:
    """An informer of a scripted server, with its notifications and delays."""

    def __init__(self, *answers: Answer, streams: bool = False, fails: Sequence[int] = ()) -> None:
        self.server, self.notifications = ScriptedServer(*answers), list[str]()
        self.delays = self.server.pauses
        self.failures = 0
        self._fails, self._batches = fails, 0
        pace = WatchOptions(Backoff(1.0, 30.0), streams, on_failure=self._count)
        self.informer = Informer(self.server, PODS, self.receive, pace, BoundaryRandom())  # type: ignore[arg-type]

    def _count(self) -> None:
        self.failures += 1

    async def receive(self, changes: Sequence[ObjectChange]) -> None:
        assert self.informer.receiving
        self._batches += 1
        self.notifications.append(" ".join(f"{'+' if raw else '-'}{name.name}" for name, raw in changes))
        if self._batches in self._fails:
            raise ZeroDivisionError

    async def run(self) -> RecordingInformer:
        with contextlib.suppress(asyncio.CancelledError):
            await self.informer.run()
        return self


LIST = "list /api/v1/pods limit=500"
WATCH = "watch /api/v1/pods watch=true allowWatchBookmarks=true timeoutSeconds=300 resourceVersion="
STREAM = "stream /api/v1/pods watch=true allowWatchBookmarks=true timeoutSeconds=300 sendInitialEvents=true resourceVersionMatch=NotOlderThan"


async def test_watch_starts_at_the_revision_of_the_last_page() -> None:
    recorder = RecordingInformer(
        page(3, ("a", 1), ("b", 2), more="next"),
        page(4, ("c", 3)),
        [[line("MODIFIED", "a", 5), b""], [line("ADDED", "d", 6)]],
    )
    await recorder.run()
    assert recorder.server.requests == [LIST, f"{LIST} continue=next", f"{WATCH}4", f"{WATCH}6"]
    assert recorder.notifications == ["+a +b", "+c", "+a", "+d"]
    assert recorder.delays == [0.0]
    assert recorder.informer.synced.is_set()


async def test_expired_version_is_relisted_with_backoff(caplog: pytest.LogCaptureFixture) -> None:
    expired = Expired(410, "Gone", "too old")
    with caplog.at_level(logging.INFO, "pilot.kube"):
        recorder = await RecordingInformer(
            page(4, ("a", 1), ("b", 2)),
            expired,
            page(7, ("a", 1), ("c", 6)),
            expired,
            page(8, ("a", 1), ("c", 6)),
            [[error_line(410)]],
            page(9, ("a", 9)),
            [[line("MODIFIED", "a", 10)], expired],
            page(11, ("a", 10)),
        ).run()
    assert recorder.delays == [0.0, 2.0, 4.0, 0.0]
    assert recorder.server.requests == [
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
    assert recorder.notifications == ["+a +b", "+c", "-b", "+a", "-c", "+a"]
    assert {r.getMessage() for r in caplog.records} == {"/api/v1/pods: the resource version expired; listing again"}
    assert len(caplog.records) == 4


async def test_outage_is_logged_once_and_retry_after_is_respected(caplog: pytest.LogCaptureFixture) -> None:
    unreachable = Unreachable("/api/v1/pods: no route")
    with caplog.at_level(logging.DEBUG, "pilot.kube"):
        recorder = await RecordingInformer(
            unreachable,
            unreachable,
            ApiError(429, "TooMany", "later", 9.0),
            page(4, ("a", 1)),
            unreachable,
            page(4, ("a", 1)),
            [[line("BOOKMARK", "", 5)]],
            unreachable,
        ).run()
    assert recorder.delays == [1.0, 2.0, 9.0, 8.0, 0.0, 1.0]
    assert recorder.failures == 5
    assert [r.getMessage() for r in caplog.records] == [
        "/api/v1/pods: no route",
        "429 TooMany: later",
        "/api/v1/pods: reconnected",
        "/api/v1/pods: 1 objects",
        "/api/v1/pods: no route",
        "/api/v1/pods: reconnected",
        "/api/v1/pods: no route",
    ]
    assert recorder.informer.error == "/api/v1/pods: no route"
    assert recorder.notifications == ["+a"]


async def test_expired_version_after_an_outage_is_relisted_at_once() -> None:
    unreachable = Unreachable("/api/v1/pods: no route")
    recorder = await RecordingInformer(
        page(4, ("a", 1)), *[unreachable] * 4, page(6), [[error_line(410)]], page(6, ("a", 5)), [[error_line(410)]]
    ).run()
    assert recorder.delays == [1.0, 2.0, 4.0, 8.0, 0.0, 2.0]
    assert recorder.notifications == ["+a", "+a"]


async def test_empty_watches_are_restarted_with_backoff() -> None:
    recorder = await RecordingInformer(page(4), [], [], [[line("BOOKMARK", "", 5)]], []).run()
    assert recorder.delays == [1.0, 2.0, 0.0, 1.0]
    assert recorder.failures == 0
    assert recorder.server.requests[-1] == f"{WATCH}5"


async def test_failed_receiver_gets_every_object_again(caplog: pytest.LogCaptureFixture) -> None:
    recorder = await RecordingInformer(
        page(4, ("a", 1), ("b", 2)), [[line("DELETED", "b", 5)]], page(6, ("a", 1), ("b", 6)), fails=(2,)
    ).run()
    assert recorder.notifications == ["+a +b", "-b", "+a +b"]
    assert recorder.delays == [1.0]
    assert "cannot watch /api/v1/pods" in caplog.text
    assert recorder.informer.receiving is False


async def test_failed_receiver_gets_deletions_it_may_have_missed() -> None:
    recorder = await RecordingInformer(
        page(4, ("a", 1)), [[line("ADDED", "b", 5)]], page(6, ("b", 5)), fails=(2,)
    ).run()
    assert recorder.notifications == ["+a", "+b", "+b", "-a"]


@pytest.mark.parametrize(
    ("lines", "expected", "revision"),
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
async def test_notifications_of_watch_events(lines: list[bytes], expected: list[str], revision: int) -> None:
    recorder = await RecordingInformer(page(4, ("a", 1)), [lines]).run()
    assert recorder.notifications == ["+a", *expected]
    assert recorder.server.requests[-1] == f"{WATCH}{revision}"


async def test_recent_deletions_are_remembered_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_module, "DELETED_CAPACITY", 2)
    deletions = [line("DELETED", name, version) for version, name in enumerate("abc", 10)]
    stale_events = [line("MODIFIED", name, 5) for name in "abc"]
    recorder = await RecordingInformer(page(4, ("a", 1), ("b", 1), ("c", 1)), [deletions, stale_events]).run()
    assert recorder.notifications == ["+a +b +c", "-a -b -c", "+a"], "the oldest deletion is forgotten"
    recreations = [
        line("DELETED", "a", 10),
        line("ADDED", "a", 11),
        line("DELETED", "b", 12),
        line("DELETED", "a", 13),
        line("DELETED", "c", 14),
    ]
    recorder = await RecordingInformer(page(4, ("a", 1), ("b", 1), ("c", 1)), [recreations, stale_events]).run()
    assert recorder.notifications == ["+a +b +c", "-a +a -b -a -c", "+b"], "a was deleted after b"


async def test_watch_list() -> None:
    initial = [[line("ADDED", "a", 1), b""], [line("BOOKMARK", "", 2), line("ADDED", "b", 2), initial_events_end(4)]]
    restarted = [[line("ADDED", "b", 2), initial_events_end(8)]]
    recorder = await RecordingInformer(
        initial, Expired(410, "Gone", ""), restarted, [[line("ADDED", "a", 9)]], streams=True
    ).run()
    assert recorder.notifications == ["+a", "+b", "-a", "+a"]
    assert recorder.server.requests == [STREAM, f"{WATCH}4", STREAM, f"{WATCH}8", f"{WATCH}9"]


@pytest.mark.parametrize("code", [400, 403, 404, 405, 422])
async def test_unsupported_watch_list_is_not_retried(code: int) -> None:
    recorder = await RecordingInformer(
        ApiError(code, "No", ""), Unreachable("x"), page(4, ("a", 1)), streams=True
    ).run()
    assert recorder.server.requests == [STREAM, LIST, LIST, f"{WATCH}4"]
    assert recorder.delays == [1.0]


@pytest.mark.parametrize(
    "fault", [[[error_line(500)]], [[line("ADDED", "a", 1)]], ApiError(401, "No", ""), ApiError(423, "No", "")]
)
async def test_watch_list_is_retried_after_a_transient_error(fault: Answer) -> None:
    recorder = await RecordingInformer(fault, [[line("ADDED", "a", 1), initial_events_end(4)]], streams=True).run()
    assert recorder.server.requests == [STREAM, STREAM, f"{WATCH}4"]
    assert recorder.notifications == ["+a"]
    assert recorder.failures == 1


async def test_changed_collection_reports_every_object() -> None:
    recorder = await RecordingInformer(page(4, ("a", 1), ("b", 2))).run()
    recorder.informer.watch_collection(WatchedCollection("/api/v2/pods", "x=y", "f=g"))
    recorder.server.answers = [page(4, ("a", 1))]
    await recorder.run()
    assert recorder.notifications == ["+a +b", "+a", "-b"]
    query = "labelSelector=x=y fieldSelector=f=g"
    assert recorder.server.requests[2:] == [
        f"list /api/v2/pods {query} limit=500",
        f"watch /api/v2/pods {query} {WATCH.partition('pods ')[2]}4",
    ]
    await recorder.informer.clear()
    assert recorder.notifications[3:] == ["-a"]
    await recorder.informer.clear()
    assert recorder.notifications[3:] == ["-a"]


async def test_server_restored_from_a_backup_during_an_outage_is_relisted() -> None:
    restored = page(3, ("a", 1), ("b", 2))
    recorder = await RecordingInformer(
        page(4, ("a", 1), ("c", 4)),
        Unreachable("/api/v1/pods: no route"),
        restored,
        restored,
        [[line("ADDED", "d", 4)]],
    ).run()
    assert recorder.server.requests == [LIST, f"{WATCH}4", "list /api/v1/pods limit=1", LIST, f"{WATCH}3", f"{WATCH}4"]
    assert recorder.notifications == ["+a +c", "+a +b", "-c", "+d"]


async def test_server_restored_from_a_backup_is_relisted() -> None:
    deleted = [line("DELETED", "a", 10), error_line(410)]
    recorder = await RecordingInformer(
        page(4, ("a", 1), ("b", 2)), [deleted], page(3, ("b", 1)), [[line("ADDED", "a", 5), line("MODIFIED", "b", 6)]]
    ).run()
    assert recorder.notifications == ["+a +b", "-a", "+b", "+a +b"]

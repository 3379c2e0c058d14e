"""Profiles of known stacks, to the last field of what tools read."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import pathlib
import resource
import sys
import time
import tracemalloc
from types import FrameType

import pytest

from pilot.pprof import memory
from pilot.pprof.calls import call_of, module_of, stack_from
from pilot.pprof.cpu import Sampled, stack_of
from pilot.pprof.memory import heap_head, heap_profile, now
from pilot.pprof.stacks import Profile, StackFrame, ValueType, as_text, encode
from pilot.pprof.tasks import GOROUTINES, THREADS, Running, counted, one_by_one, tasks, threads
from pilot.pprof.trace import encode_trace
from protos import profile_pb2

OUTER, INNER, OTHER = (
    StackFrame("a.outer", "a.py", 3, 1),
    StackFrame("a.inner", "a.py", 9, 7),
    StackFrame("b.other", "b.py", 5, 4),
)
AGAIN = INNER._replace(line=10)


def test_a_profile_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1234)
    space = ValueType("space", "bytes")
    kinds = ValueType("objects", "count"), space
    body = encode(Profile(kinds, {(INNER, OUTER): (1, 10), (AGAIN, OUTER): (2, 20), (OTHER,): (3, 30)}, space, shown=1))
    made = profile_pb2.Profile.FromString(gzip.decompress(body))
    texts = list(made.string_table)
    assert texts == ["", "objects", "count", "space", "bytes", "a.inner", "a.py", "a.outer", "b.other", "b.py"]
    assert [(texts[kind.type], texts[kind.unit]) for kind in (*made.sample_type, made.period_type)] == [*kinds, space]
    assert [(f.id, texts[f.name], texts[f.system_name], texts[f.filename], f.start_line) for f in made.function] == [
        (1, "a.inner", "a.inner", "a.py", 7),
        (2, "a.outer", "a.outer", "a.py", 1),
        (3, "b.other", "b.other", "b.py", 4),
    ]
    assert [(at.id, at.line[0].function_id, at.line[0].line) for at in made.location] == [
        (1, 1, 9),
        (2, 2, 3),
        (3, 1, 10),
        (4, 3, 5),
    ]
    assert [(list(s.location_id), list(s.value)) for s in made.sample] == [
        ([1, 2], [1, 10]),
        ([3, 2], [2, 20]),
        ([4], [3, 30]),
    ]
    assert (made.period, made.duration_nanos, made.time_nanos, texts[made.default_sample_type]) == (1, 0, 1234, "space")


def test_a_profile_as_text_has_the_largest_first() -> None:
    kind = ValueType("cpu", "nanoseconds")
    profile = Profile((kind, kind), {(INNER, OUTER): (9, 10), (OTHER,): (3, 30)}, kind, shown=1)
    assert (
        as_text("head", profile)
        == "head\n3 30 @\n#\tb.other\tb.py:5\n\n9 10 @\n#\ta.inner\ta.py:9\n#\ta.outer\ta.py:3\n\n"
    )


def test_a_trace_as_a_whole() -> None:
    """A call that is at another line goes on; one of the same name that begins elsewhere, or is in another file, is another one."""
    elsewhere, other_file = OUTER._replace(begins=2), OUTER._replace(file="c.py")
    sampled = [
        ((INNER, OUTER), 0.001),
        ((AGAIN, OUTER), 0.001),
        ((OUTER,), 0.001),
        ((elsewhere,), 0.001),
        ((other_file,), 0.001),
    ]
    made = json.loads(encode_trace(Sampled(sampled, 0.005)))
    assert (made["displayTimeUnit"], set(made)) == ("ms", {"displayTimeUnit", "traceEvents"})
    name, *events = made["traceEvents"]
    assert name == {"name": "thread_name", "ph": "M", "pid": os.getpid(), "tid": 1, "args": {"name": "event loop"}}
    assert {(event["pid"], event["tid"]) for event in events} == {(os.getpid(), 1)}
    assert [(e["ph"], e["name"], e["ts"], e.get("args", {}).get("file")) for e in events] == [
        ("B", "a.outer", 0, "a.py:3"),
        ("B", "a.inner", 0, "a.py:9"),
        ("E", "a.inner", 2000, None),
        ("E", "a.outer", 3000, None),
        ("B", "a.outer", 3000, "a.py:3"),
        ("E", "a.outer", 4000, None),
        ("B", "a.outer", 4000, "c.py:3"),
        ("E", "a.outer", 5000, None),
    ]


def test_a_record_that_says_no_line_is_at_its_first() -> None:
    assert stack_of(["run\x00/x/pilot/a.py\x0011", "odd\x00/x/pilot/b.py\x005\x01lx", "here\x00<string>\x001"]) == (
        StackFrame("pilot.b.odd", "/x/pilot/b.py", 0, 5),
        StackFrame("pilot.a.run", "/x/pilot/a.py", 11, 11),
    )
    assert stack_of([]) == ()


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("pilot/xds/ads.py", "pilot.xds.ads"),
        ("/x/ca/store.py", "ca.store"),
        ("/lib/python3.12/json/__init__.py", "json"),
        ("site-packages/x.py", "x"),
        ("/a/dist-packages/x/y.py", "x.y"),
        ("x.py", "x"),
        ("", ""),
        ("/site-packages/six.py", "six"),
    ],
)
def test_modules_of_files(file: str, module: str) -> None:
    assert module_of(file) == module


def test_stacks_are_cut_at_a_hundred_calls() -> None:
    def deeper(calls: int) -> FrameType:
        return deeper(calls - 1) if calls else sys._getframe()

    innermost = deeper(150)
    assert len(stack_from(innermost)) == 100
    first, second, *_ = stack_from(innermost)
    assert first == call_of(innermost)
    assert (
        (first.function, first.begins)
        == (second.function, second.begins)
        == (f"{module_of(__file__)}.{deeper.__qualname__}", first.line - 1)
    )
    assert stack_from(None) == ()


class Statistic:
    """What tracemalloc says of one stack, the outermost call of which comes first."""

    def __init__(self, lines: list[int], count: int, size: int) -> None:
        self.traceback = [type("Frame", (), {"filename": "/x/pilot/gone.py", "lineno": line})() for line in lines]
        self.count, self.size = count, size


class Snapshot:
    def __init__(self, *found: Statistic) -> None:
        self.found = found

    def statistics(self, by: str) -> tuple[Statistic, ...]:
        assert by == "traceback"
        return self.found


def piece(*lines: int) -> tuple[StackFrame, ...]:
    return tuple(StackFrame("pilot.gone.?", "/x/pilot/gone.py", line) for line in lines)


async def test_memory_by_stack_adds_up_what_is_of_one_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(Statistic([1, 2], 3, 100), Statistic([1, 2], 1, 50), Statistic([7], 2, 8))
    monkeypatch.setattr(memory, "function_at", lambda file, line: "?")
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: True)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: snapshot)
    found = await now()
    assert found == {piece(2, 1): [4, 150], piece(7): [2, 8]}
    assert heap_head(found) == "heap profile: 6: 158 [6: 158] @ heap/1"
    made = heap_profile(found, 3)
    assert made.samples == {piece(2, 1): (4, 150, 4, 150), piece(7): (2, 8, 2, 8)}
    assert [tuple(kind) for kind in (*made.kinds, made.period_kind)] == [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("space", "bytes"),
    ]
    assert (made.shown, made.period, made.seconds, memory.ALLOC_SPACE, memory.INUSE_SPACE) == (3, 1, 0.0, 1, 3)


async def test_what_has_grown_in_some_seconds_is_the_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Snapshot(Statistic([1], 3, 100), Statistic([2], 5, 50), Statistic([3], 1, 10))
    after = Snapshot(Statistic([1], 5, 160), Statistic([2], 5, 50), Statistic([3], 2, 9), Statistic([4], 1, 1))
    snapshots = iter((before, after))
    monkeypatch.setattr(memory, "function_at", lambda file, line: "?")
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: True)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: next(snapshots))
    assert await memory.sample(0.0) == {piece(1): [2, 60], piece(4): [1, 1]}


async def test_memory_is_traced_with_ten_calls_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(tracemalloc, "start", calls.append)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: Snapshot())
    monkeypatch.setattr(tracemalloc, "stop", lambda: calls.append("stop"))
    assert await memory.sample(0.0) == {}
    assert calls == [10, "stop"]


def test_resident_memory_is_that_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pathlib.Path, "read_text", lambda path: "100 7 3 1 0 2 0" if str(path) == "/proc/self/statm" else ""
    )
    monkeypatch.setattr(resource, "getpagesize", lambda: 4096)
    assert memory.resident() == 28_672
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: "")
    monkeypatch.setattr(resource, "getrusage", lambda who: type("Usage", (), {"ru_maxrss": 5})())
    assert memory.resident() == 5_120


async def test_tasks_and_threads_by_name_and_state() -> None:
    async def waits(gate: asyncio.Event) -> None:
        await gate.wait()

    gate = asyncio.Event()
    waiting = asyncio.create_task(waits(gate), name="waits")
    await asyncio.sleep(0)
    found = {one.name: one for one in tasks()}
    assert found["waits"].state == "waiting"
    assert [call.function.rpartition(".")[2] for call in found["waits"].stack] == ["wait", "waits"]
    assert [one.state for one in found.values()].count("running") == 1
    [main] = [one for one in threads() if one.name == "MainThread"]
    assert (main.state, main.stack[0].function) == ("thread", "pilot.pprof.tasks.threads")
    gate.set()
    await waiting


def test_goroutines_are_counted_by_stack_and_shown_one_by_one() -> None:
    running = [
        Running("a", "running", (INNER, OUTER)),
        Running("b", "waiting", (OTHER,)),
        Running("c", "thread", (OTHER,)),
    ]
    made = counted(running, THREADS)
    assert (made.samples, made.kinds, made.period_kind) == (
        {(INNER, OUTER): (1,), (OTHER,): (2,)},
        (("threadcreate", "count"),),
        THREADS,
    )
    assert tuple(GOROUTINES) == ("goroutine", "count")
    assert one_by_one(running) == (
        "goroutine 1 [running]: a\n#\ta.inner\ta.py:9\n#\ta.outer\ta.py:3\n\ngoroutine 2 [waiting]: b\n#\tb.other\tb.py:5\n\n"
        "goroutine 3 [thread]: c\n#\tb.other\tb.py:5\n"
    )

"""Profile and trace formats for known stacks."""

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
INNER_NEXT_LINE = INNER._replace(line=10)


def test_encoded_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1234)
    space = ValueType("space", "bytes")
    kinds = ValueType("objects", "count"), space
    body = encode(
        Profile(kinds, {(INNER, OUTER): (1, 10), (INNER_NEXT_LINE, OUTER): (2, 20), (OTHER,): (3, 30)}, space, shown=1)
    )
    profile = profile_pb2.Profile.FromString(gzip.decompress(body))
    strings = list(profile.string_table)
    assert strings == ["", "objects", "count", "space", "bytes", "a.inner", "a.py", "a.outer", "b.other", "b.py"]
    assert [(strings[kind.type], strings[kind.unit]) for kind in (*profile.sample_type, profile.period_type)] == [
        *kinds,
        space,
    ]
    assert [
        (
            function.id,
            strings[function.name],
            strings[function.system_name],
            strings[function.filename],
            function.start_line,
        )
        for function in profile.function
    ] == [
        (1, "a.inner", "a.inner", "a.py", 7),
        (2, "a.outer", "a.outer", "a.py", 1),
        (3, "b.other", "b.other", "b.py", 4),
    ]
    assert [(location.id, location.line[0].function_id, location.line[0].line) for location in profile.location] == [
        (1, 1, 9),
        (2, 2, 3),
        (3, 1, 10),
        (4, 3, 5),
    ]
    assert [(list(sample.location_id), list(sample.value)) for sample in profile.sample] == [
        ([1, 2], [1, 10]),
        ([3, 2], [2, 20]),
        ([4], [3, 30]),
    ]
    assert (profile.period, profile.duration_nanos, profile.time_nanos, strings[profile.default_sample_type]) == (
        1,
        0,
        1234,
        "space",
    )


def test_text_profile_is_sorted_by_value() -> None:
    kind = ValueType("cpu", "nanoseconds")
    profile = Profile((kind, kind), {(INNER, OUTER): (9, 10), (OTHER,): (3, 30)}, kind, shown=1)
    assert (
        as_text("head", profile)
        == "head\n3 30 @\n#\tb.other\tb.py:5\n\n9 10 @\n#\ta.inner\ta.py:9\n#\ta.outer\ta.py:3\n\n"
    )


def test_encoded_trace() -> None:
    """A call continues at another line. The same name with another first line or file is a new call."""
    other_start, other_file = OUTER._replace(begins=2), OUTER._replace(file="c.py")
    sampled = [
        ((INNER, OUTER), 0.001),
        ((INNER_NEXT_LINE, OUTER), 0.001),
        ((OUTER,), 0.001),
        ((other_start,), 0.001),
        ((other_file,), 0.001),
    ]
    trace = json.loads(encode_trace(Sampled(sampled, 0.005)))
    assert (trace["displayTimeUnit"], set(trace)) == ("ms", {"displayTimeUnit", "traceEvents"})
    name, *events = trace["traceEvents"]
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


def test_frame_without_a_line_uses_its_first_line() -> None:
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
        ("/x/site-packages/pilot/xds/ads.py", "pilot.xds.ads"),
        ("/srv/app/pilot/derive/__init__.py", "pilot.derive"),
        ("/usr/lib/python3.11/asyncio/events.py", "asyncio.events"),
        ("/srv/tool.py", "tool"),
    ],
)
def test_module_of_a_file(file: str, module: str) -> None:
    assert module_of(file) == module


def test_stacks_are_limited_to_a_hundred_calls() -> None:
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
    """A tracemalloc statistic of one stack, outermost call first."""

    def __init__(self, lines: list[int], count: int, size: int) -> None:
        self.traceback = [type("Frame", (), {"filename": "/x/pilot/gone.py", "lineno": line})() for line in lines]
        self.count, self.size = count, size


class Snapshot:
    def __init__(self, *rows: Statistic) -> None:
        self.rows = rows

    def statistics(self, by: str) -> tuple[Statistic, ...]:
        assert by == "traceback"
        return self.rows


def memory_stack(*lines: int) -> tuple[StackFrame, ...]:
    return tuple(StackFrame("pilot.gone.?", "/x/pilot/gone.py", line) for line in lines)


async def test_memory_usage_is_summed_by_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(Statistic([1, 2], 3, 100), Statistic([1, 2], 1, 50), Statistic([7], 2, 8))
    monkeypatch.setattr(memory, "function_at", lambda file, line: "?")
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: True)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: snapshot)
    usage = await now()
    assert usage == {memory_stack(2, 1): [4, 150], memory_stack(7): [2, 8]}
    assert heap_head(usage) == "heap profile: 6: 158 [6: 158] @ heap/1"
    profile = heap_profile(usage, 3)
    assert profile.samples == {memory_stack(2, 1): (4, 150, 4, 150), memory_stack(7): (2, 8, 2, 8)}
    assert [tuple(kind) for kind in (*profile.kinds, profile.period_kind)] == [
        ("alloc_objects", "count"),
        ("alloc_space", "bytes"),
        ("inuse_objects", "count"),
        ("inuse_space", "bytes"),
        ("space", "bytes"),
    ]
    assert (profile.shown, profile.period, profile.seconds, memory.ALLOC_SPACE, memory.INUSE_SPACE) == (3, 1, 0.0, 1, 3)


async def test_memory_sample_is_the_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Snapshot(Statistic([1], 3, 100), Statistic([2], 5, 50), Statistic([3], 1, 10))
    after = Snapshot(Statistic([1], 5, 160), Statistic([2], 5, 50), Statistic([3], 2, 9), Statistic([4], 1, 1))
    snapshots = iter((before, after))
    monkeypatch.setattr(memory, "function_at", lambda file, line: "?")
    monkeypatch.setattr(tracemalloc, "is_tracing", lambda: True)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: next(snapshots))
    assert await memory.sample(0.0) == {memory_stack(1): [2, 60], memory_stack(4): [1, 1]}


async def test_memory_sample_traces_ten_frames_and_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[object] = []
    monkeypatch.setattr(tracemalloc, "start", calls.append)
    monkeypatch.setattr(tracemalloc, "take_snapshot", lambda: Snapshot())
    monkeypatch.setattr(tracemalloc, "stop", lambda: calls.append("stop"))
    assert await memory.sample(0.0) == {}
    assert calls == [10, "stop"]


def test_resident_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        pathlib.Path, "read_text", lambda path: "100 7 3 1 0 2 0" if str(path) == "/proc/self/statm" else ""
    )
    monkeypatch.setattr(resource, "getpagesize", lambda: 4096)
    assert memory.resident() == 28_672
    monkeypatch.setattr(pathlib.Path, "read_text", lambda path: "")
    monkeypatch.setattr(resource, "getrusage", lambda target: type("Usage", (), {"ru_maxrss": 5})())
    assert memory.resident() == 5_120


async def test_tasks_and_threads_by_name_and_state() -> None:
    async def wait_for_gate(gate: asyncio.Event) -> None:
        await gate.wait()

    gate = asyncio.Event()
    task = asyncio.create_task(wait_for_gate(gate), name="gate-waiter")
    await asyncio.sleep(0)
    by_name = {entry.name: entry for entry in tasks()}
    assert by_name["gate-waiter"].state == "waiting"
    assert [call.function.rpartition(".")[2] for call in by_name["gate-waiter"].stack] == ["wait", "wait_for_gate"]
    assert [entry.state for entry in by_name.values()].count("running") == 1
    [main] = [entry for entry in threads() if entry.name == "MainThread"]
    assert (main.state, main.stack[0].function) == ("thread", "pilot.pprof.tasks.threads")
    gate.set()
    await task


def test_goroutines_by_stack_and_individually() -> None:
    running = [
        Running("a", "running", (INNER, OUTER)),
        Running("b", "waiting", (OTHER,)),
        Running("c", "thread", (OTHER,)),
    ]
    profile = counted(running, THREADS)
    assert (profile.samples, profile.kinds, profile.period_kind) == (
        {(INNER, OUTER): (1,), (OTHER,): (2,)},
        (("threadcreate", "count"),),
        THREADS,
    )
    assert tuple(GOROUTINES) == ("goroutine", "count")
    assert one_by_one(running) == (
        "goroutine 1 [running]: a\n#\ta.inner\ta.py:9\n#\ta.outer\ta.py:3\n\ngoroutine 2 [waiting]: b\n#\tb.other\tb.py:5\n\n"
        "goroutine 3 [thread]: c\n#\tb.other\tb.py:5\n"
    )

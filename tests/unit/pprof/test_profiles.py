"""Profiles of the process: the pages of Go's net/http/pprof, in the formats that its tools open."""

from __future__ import annotations

import asyncio
import gzip
import json
import pathlib
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pilot.debug.application import application
from pilot.mesh.tables.database import Mesh
from pilot.pprof import memory
from pilot.pprof.busy import BusyError, exclusive
from pilot.pprof.calls import module_of
from pilot.pprof.cpu import Sampled, cpu_profile, stack_of
from pilot.pprof.functions import function_at
from pilot.pprof.stacks import Profile, StackFrame, ValueType, encode
from pilot.pprof.trace import encode_trace
from pilot.settings.process import DebugSettings
from protos import profile_pb2
from testing.mesh.debug_server import sources

Get = Callable[[str], Awaitable[tuple[int, str, bytes]]]
OUTER, INNER, OTHER = (
    StackFrame("a.outer", "a.py", 3, 1),
    StackFrame("a.inner", "a.py", 9, 7),
    StackFrame("b.other", "b.py", 5, 4),
)


@pytest.fixture
async def client() -> AsyncIterator[TestClient[web.Request, web.Application]]:
    async with TestClient(TestServer(application(sources(Mesh())))) as started:
        yield started


@pytest.fixture
def get(client: TestClient[web.Request, web.Application]) -> Get:
    async def ask(path: str) -> tuple[int, str, bytes]:
        async with client.get(f"/debug/pprof/{path}") as response:
            return response.status, response.headers["Content-Type"], await response.read()

    return ask


def read(body: bytes) -> profile_pb2.Profile:
    return profile_pb2.Profile.FromString(gzip.decompress(body))


def kinds(made: profile_pb2.Profile) -> list[str]:
    return [f"{made.string_table[kind.type]}/{made.string_table[kind.unit]}" for kind in made.sample_type]


def functions(made: profile_pb2.Profile) -> set[str]:
    return {made.string_table[function.name] for function in made.function}


def stacks(made: profile_pb2.Profile) -> dict[tuple[str, ...], tuple[int, ...]]:
    named = {function.id: made.string_table[function.name] for function in made.function}
    at = {location.id: named[location.line[0].function_id] for location in made.location}
    return {tuple(at[number] for number in sample.location_id): tuple(sample.value) for sample in made.sample}


def test_a_profile_has_each_text_function_and_location_once() -> None:
    kind = ValueType("cpu", "nanoseconds")
    made = read(
        encode(
            Profile(
                (ValueType("samples", "count"), kind),
                {(INNER, OUTER): (1, 10), (OTHER, OUTER): (2, 30)},
                kind,
                5,
                1.5,
                shown=1,
            )
        )
    )
    assert stacks(made) == {("a.inner", "a.outer"): (1, 10), ("b.other", "a.outer"): (2, 30)}
    assert (len(made.function), len(made.location), made.string_table[0]) == (3, 3, "")
    assert len(set(made.string_table)) == len(made.string_table)
    assert (kinds(made), made.string_table[made.default_sample_type]) == (["samples/count", "cpu/nanoseconds"], "cpu")
    assert (made.period, made.duration_nanos) == (5, 1_500_000_000)


def test_time_that_the_loop_waits_is_not_in_the_profile() -> None:
    sampled = Sampled([((INNER, OUTER), 0.01), ((), 5.0), ((INNER, OUTER), 0.02)], 5.03)
    assert cpu_profile(sampled).samples == {(INNER, OUTER): [2, 30_000_000]}


def test_a_record_becomes_a_stack_with_the_leaf_first() -> None:
    frames = [
        "MainThread\x00<thread>\x001",
        "outer\x00/x/pilot/xds/a.py\x001\x01l3",
        "inner\x00/x/pilot/xds/a.py\x007\x01cThing\x01l9",
    ]
    inner, outer = stack_of(frames)
    assert (inner.function, inner.line, inner.begins) == ("pilot.xds.a.Thing.inner", 9, 7)
    assert outer.function == "pilot.xds.a.outer"
    assert stack_of([*frames[:1], "run\x00/usr/lib/python3.11/asyncio/runners.py\x001\x01l190"]) == ()


@pytest.mark.parametrize(
    ("file", "module"),
    [
        ("/x/site-packages/pilot/xds/ads.py", "pilot.xds.ads"),
        ("/srv/app/pilot/derive/__init__.py", "pilot.derive"),
        ("/usr/lib/python3.11/asyncio/events.py", "asyncio.events"),
        ("/srv/tool.py", "tool"),
    ],
)
def test_modules_are_named_as_programs_name_them(file: str, module: str) -> None:
    assert module_of(file) == module


def test_a_trace_has_a_call_of_two_samples_in_a_row_once() -> None:
    made = json.loads(encode_trace(Sampled([((INNER, OUTER), 0.001), ((OTHER, OUTER), 0.002), ((), 0.5)], 0.503)))
    events = [(event["ph"], event["name"], event["ts"]) for event in made["traceEvents"] if event["ph"] != "M"]
    assert events == [
        ("B", "a.outer", 0),
        ("B", "a.inner", 0),
        ("E", "a.inner", 1000),
        ("B", "b.other", 1000),
        ("E", "b.other", 3000),
        ("E", "a.outer", 3000),
    ]


async def test_the_profile_names_what_runs_on_the_loop(get: Get) -> None:
    async def burn_time() -> None:
        while True:
            sum(n * n for n in range(3000))
            await asyncio.sleep(0)

    burning = asyncio.create_task(burn_time())
    status, content_type, body = await get("profile?seconds=0.3")
    burning.cancel()
    assert (status, content_type) == (200, "application/octet-stream")
    made = read(body)
    assert kinds(made) == ["samples/count", "cpu/nanoseconds"]
    assert any(name.endswith("burn_time") for name in functions(made))


async def test_one_profile_at_a_time(get: Get) -> None:
    with exclusive("the profiler"):
        status, _, body = await get("profile?seconds=0.1")
    assert (status, body) == (500, b"Could not enable profiling: the profiler is already in use\n")
    with pytest.raises(BusyError), exclusive("x"), exclusive("x"):
        pass
    assert (await get("trace?seconds=0.01"))[0] == 200


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "inf", "601", "1e999"])
async def test_seconds_that_make_no_sense_are_refused(get: Get, seconds: str) -> None:
    assert (await get(f"profile?seconds={seconds}"))[0] == 400


async def test_goroutines_are_tasks_and_threads_with_what_they_await(get: Get) -> None:
    async def sleeps_inside() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await sleeps_inside()

    waiting = asyncio.create_task(outer(), name="the one that sleeps")
    await asyncio.sleep(0)
    one_by_one, counted, made = [await get(f"goroutine{query}") for query in ("?debug=2", "?debug=1", "")]
    waiting.cancel()
    text = one_by_one[2].decode()
    assert "[waiting]: the one that sleeps\n" in text
    assert "[thread]: MainThread\n" in text
    assert counted[2].startswith(b"goroutine profile: total ")
    (stack,) = [stack for stack in stacks(read(made[2])) if any("sleeps_inside" in name for name in stack)]
    inner, awaiting = (
        next(n for n, name in enumerate(stack) if name.endswith(end)) for end in ("sleeps_inside", ".outer")
    )
    assert inner < awaiting, "the leaf comes first"


async def test_the_heap_of_a_process_that_is_not_traced_is_all_that_it_has(get: Get) -> None:
    made = read((await get("heap"))[2])
    assert kinds(made) == ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"]
    ((names, values),) = stacks(made).items()
    assert "untraced" in names[0]
    assert values[3] > 1 << 20


async def test_the_heap_of_some_seconds_names_who_allocated(get: Get) -> None:
    kept: list[bytes] = []

    async def hoard_memory() -> None:
        while True:
            kept.append(bytes(100_000))
            await asyncio.sleep(0.01)

    hoarding = asyncio.create_task(hoard_memory())
    status, _, body = await get("allocs?seconds=0.2")
    hoarding.cancel()
    made = read(body)
    assert (status, made.string_table[made.default_sample_type]) == (200, "alloc_space")
    assert any(name.endswith("hoard_memory") for name in functions(made))
    assert not tracemalloc.is_tracing()


async def test_memory_is_no_longer_traced_than_was_asked_for_though_the_loop_is_at_work() -> None:
    asked = asyncio.create_task(memory.sample(0.01))
    while not tracemalloc.is_tracing():
        await asyncio.sleep(0)
    deadline = time.monotonic() + 30
    while tracemalloc.is_tracing() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not tracemalloc.is_tracing()
    assert await asked


async def test_whoever_goes_away_ends_the_tracing(get: Get) -> None:
    asked = asyncio.create_task(memory.sample(600))
    while not tracemalloc.is_tracing():
        await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    while tracemalloc.is_tracing():
        await asyncio.sleep(0.001)
    assert (await get("heap?seconds=0.01"))[0] == 200


SOURCE = """import a

class Thing:
    size = 1

    def method(self):
        def inner():
            return 1
        return [
            inner()
            for _ in range(3)
        ]

    @property
    def shown(self):
        return map(
            lambda _: a.of(
                _),
            "x")
"""


@pytest.mark.parametrize(
    ("line", "function"),
    [
        (1, "<module>"),
        (4, "<module>"),
        (8, "Thing.method.inner"),
        (9, "Thing.method"),
        (10, "Thing.method"),
        (17, "Thing.shown"),
        (18, "Thing.shown"),
        (99, "<module>"),
    ],
)
def test_a_line_is_of_the_innermost_function_with_a_name(tmp_path: pathlib.Path, line: int, function: str) -> None:
    (tmp_path / "made.py").write_text(SOURCE)
    assert function_at(str(tmp_path / "made.py"), line) == function


def test_a_file_that_cannot_be_read_has_no_functions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wrong.py").write_text("def (")
    assert [function_at(file, 1) for file in (str(tmp_path / "wrong.py"), str(tmp_path / "none.py"), "<string>")] == [
        "<module>"
    ] * 3


async def test_texts_of_profiles(get: Get) -> None:
    for path, head in (
        ("heap?debug=1", b"heap profile: 1: "),
        ("block?debug=1", b"--- contention:"),
        ("mutex?debug=1", b"--- mutex:"),
        ("threadcreate?debug=1", b"threadcreate profile: total "),
        ("symbol", b"num_symbols: 1\n"),
    ):
        status, content_type, body = await get(path)
        assert (status, content_type, body[: len(head)]) == (200, "text/plain; charset=utf-8", head)


async def test_the_index_and_what_there_is_not(get: Get) -> None:
    status, content_type, body = await get("")
    assert (status, content_type) == (200, "text/html; charset=utf-8")
    assert all(name in body.decode() for name in ("heap", "goroutine", "profile", "allocs", "cmdline"))
    assert await get("nope") == (404, "text/plain; charset=utf-8", b"Unknown profile\n")


async def test_without_the_flag_there_are_no_profiles() -> None:
    pages = application(sources(Mesh(), settings=DebugSettings(profiles=False)))
    async with TestClient(TestServer(pages)) as started:
        for path in ("/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/nope"):
            async with started.get(path) as response:
                assert (response.status, await response.text()) == (404, "404 page not found\n")

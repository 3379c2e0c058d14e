"""Profiles of the process, served like Go's net/http/pprof."""

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
    async with TestClient(TestServer(application(sources(Mesh())))) as test_client:
        yield test_client


@pytest.fixture
def get(client: TestClient[web.Request, web.Application]) -> Get:
    async def fetch(path: str) -> tuple[int, str, bytes]:
        async with client.get(f"/debug/pprof/{path}") as response:
            return response.status, response.headers["Content-Type"], await response.read()

    return fetch


def decode_profile(body: bytes) -> profile_pb2.Profile:
    return profile_pb2.Profile.FromString(gzip.decompress(body))


def kinds(profile: profile_pb2.Profile) -> list[str]:
    return [f"{profile.string_table[kind.type]}/{profile.string_table[kind.unit]}" for kind in profile.sample_type]


def functions(profile: profile_pb2.Profile) -> set[str]:
    return {profile.string_table[function.name] for function in profile.function}


def stacks(profile: profile_pb2.Profile) -> dict[tuple[str, ...], tuple[int, ...]]:
    names = {function.id: profile.string_table[function.name] for function in profile.function}
    functions_by_location = {location.id: names[location.line[0].function_id] for location in profile.location}
    return {
        tuple(functions_by_location[number] for number in sample.location_id): tuple(sample.value)
        for sample in profile.sample
    }


def test_profile_deduplicates_strings_functions_and_locations() -> None:
    kind = ValueType("cpu", "nanoseconds")
    profile = decode_profile(
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
    assert stacks(profile) == {("a.inner", "a.outer"): (1, 10), ("b.other", "a.outer"): (2, 30)}
    assert (len(profile.function), len(profile.location), profile.string_table[0]) == (3, 3, "")
    assert len(set(profile.string_table)) == len(profile.string_table)
    assert (kinds(profile), profile.string_table[profile.default_sample_type]) == (
        ["samples/count", "cpu/nanoseconds"],
        "cpu",
    )
    assert (profile.period, profile.duration_nanos) == (5, 1_500_000_000)


def test_idle_time_is_not_in_the_profile() -> None:
    sampled = Sampled([((INNER, OUTER), 0.01), ((), 5.0), ((INNER, OUTER), 0.02)], 5.03)
    assert cpu_profile(sampled).samples == {(INNER, OUTER): [2, 30_000_000]}


def test_stack_of_a_record_is_leaf_first() -> None:
    frames = [
        "MainThread\x00<thread>\x001",
        "outer\x00/x/pilot/xds/a.py\x001\x01l3",
        "inner\x00/x/pilot/xds/a.py\x007\x01cThing\x01l9",
    ]
    inner, outer = stack_of(frames)
    assert (inner.function, inner.line, inner.begins) == ("pilot.xds.a.Thing.inner", 9, 7)
    assert outer.function == "pilot.xds.a.outer"
    assert stack_of([*frames[:1], "run\x00/usr/lib/python3.11/asyncio/runners.py\x001\x01l190"]) == ()


def test_trace_merges_consecutive_samples_of_a_call() -> None:
    trace = json.loads(encode_trace(Sampled([((INNER, OUTER), 0.001), ((OTHER, OUTER), 0.002), ((), 0.5)], 0.503)))
    events = [(event["ph"], event["name"], event["ts"]) for event in trace["traceEvents"] if event["ph"] != "M"]
    assert events == [
        ("B", "a.outer", 0),
        ("B", "a.inner", 0),
        ("E", "a.inner", 1000),
        ("B", "b.other", 1000),
        ("E", "b.other", 3000),
        ("E", "a.outer", 3000),
    ]


async def test_cpu_profile_contains_running_functions(get: Get) -> None:
    async def burn_time() -> None:
        while True:
            sum(n * n for n in range(3000))
            await asyncio.sleep(0)

    task = asyncio.create_task(burn_time())
    status, content_type, body = await get("profile?seconds=0.3")
    task.cancel()
    assert (status, content_type) == (200, "application/octet-stream")
    profile = decode_profile(body)
    assert kinds(profile) == ["samples/count", "cpu/nanoseconds"]
    assert any(name.endswith("burn_time") for name in functions(profile))


async def test_concurrent_profiles_are_rejected(get: Get) -> None:
    with exclusive("the profiler"):
        status, _, body = await get("profile?seconds=0.1")
    assert (status, body) == (500, b"Could not enable profiling: the profiler is already in use\n")
    with pytest.raises(BusyError), exclusive("x"), exclusive("x"):
        pass
    assert (await get("trace?seconds=0.01"))[0] == 200


@pytest.mark.parametrize("seconds", ["x", "-1", "nan", "inf", "601", "1e999"])
async def test_invalid_seconds_are_rejected(get: Get, seconds: str) -> None:
    assert (await get(f"profile?seconds={seconds}"))[0] == 400


async def test_goroutines_are_tasks_and_threads(get: Get) -> None:
    async def sleeps_inside() -> None:
        await asyncio.sleep(60)

    async def outer() -> None:
        await sleeps_inside()

    task = asyncio.create_task(outer(), name="sleeper")
    await asyncio.sleep(0)
    one_by_one, by_stack, encoded = [await get(f"goroutine{query}") for query in ("?debug=2", "?debug=1", "")]
    task.cancel()
    text = one_by_one[2].decode()
    assert "[waiting]: sleeper\n" in text
    assert "[thread]: MainThread\n" in text
    assert by_stack[2].startswith(b"goroutine profile: total ")
    (stack,) = [stack for stack in stacks(decode_profile(encoded[2])) if any("sleeps_inside" in name for name in stack)]
    inner, caller = (
        next(n for n, name in enumerate(stack) if name.endswith(end)) for end in ("sleeps_inside", ".outer")
    )
    assert inner < caller, "the leaf is first"


async def test_heap_of_an_untraced_process_is_its_total(get: Get) -> None:
    profile = decode_profile((await get("heap"))[2])
    assert kinds(profile) == ["alloc_objects/count", "alloc_space/bytes", "inuse_objects/count", "inuse_space/bytes"]
    ((names, values),) = stacks(profile).items()
    assert "untraced" in names[0]
    assert values[3] > 1 << 20


async def test_timed_heap_profile_contains_allocating_functions(get: Get) -> None:
    blocks: list[bytes] = []

    async def hoard_memory() -> None:
        while True:
            blocks.append(bytes(100_000))
            await asyncio.sleep(0.01)

    task = asyncio.create_task(hoard_memory())
    status, _, body = await get("allocs?seconds=0.2")
    task.cancel()
    profile = decode_profile(body)
    assert (status, profile.string_table[profile.default_sample_type]) == (200, "alloc_space")
    assert any(name.endswith("hoard_memory") for name in functions(profile))
    assert not tracemalloc.is_tracing()


async def test_tracing_ends_on_time_while_the_loop_is_blocked() -> None:
    sample = asyncio.create_task(memory.sample(0.01))
    while not tracemalloc.is_tracing():
        await asyncio.sleep(0)
    deadline = time.monotonic() + 30
    while tracemalloc.is_tracing() and time.monotonic() < deadline:
        time.sleep(0.001)
    assert not tracemalloc.is_tracing()
    assert await sample


async def test_cancelled_sample_ends_tracing(get: Get) -> None:
    sample = asyncio.create_task(memory.sample(600))
    while not tracemalloc.is_tracing():
        await asyncio.sleep(0)
    sample.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sample
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
def test_function_at_a_line_is_the_innermost_named_one(tmp_path: pathlib.Path, line: int, function: str) -> None:
    (tmp_path / "made.py").write_text(SOURCE)
    assert function_at(str(tmp_path / "made.py"), line) == function


def test_unreadable_file_has_no_functions(tmp_path: pathlib.Path) -> None:
    (tmp_path / "wrong.py").write_text("def (")
    assert [function_at(file, 1) for file in (str(tmp_path / "wrong.py"), str(tmp_path / "none.py"), "<string>")] == [
        "<module>"
    ] * 3


async def test_text_profiles(get: Get) -> None:
    for path, head in (
        ("heap?debug=1", b"heap profile: 1: "),
        ("block?debug=1", b"--- contention:"),
        ("mutex?debug=1", b"--- mutex:"),
        ("threadcreate?debug=1", b"threadcreate profile: total "),
        ("symbol", b"num_symbols: 1\n"),
    ):
        status, content_type, body = await get(path)
        assert (status, content_type, body[: len(head)]) == (200, "text/plain; charset=utf-8", head)


async def test_index_and_unknown_profile(get: Get) -> None:
    status, content_type, body = await get("")
    assert (status, content_type) == (200, "text/html; charset=utf-8")
    assert all(name in body.decode() for name in ("heap", "goroutine", "profile", "allocs", "cmdline"))
    assert await get("nope") == (404, "text/plain; charset=utf-8", b"Unknown profile\n")


async def test_profiles_can_be_disabled() -> None:
    pages = application(sources(Mesh(), settings=DebugSettings(profiles=False)))
    async with TestClient(TestServer(pages)) as client:
        for path in ("/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/nope"):
            async with client.get(path) as response:
                assert (response.status, await response.text()) == (404, "404 page not found\n")

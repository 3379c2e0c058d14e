"""The pages below /debug/pprof/, compatible with Go's net/http/pprof: https://pkg.go.dev/net/http/pprof"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from pilot.debug.page import FileAnswer, Html, Later, Page, Query, Refused, TextAnswer
from pilot.debug.slices import collect_all
from pilot.debug.sources import Sources
from pilot.lib.redaction import redacted_arguments
from pilot.pprof import cpu, memory
from pilot.pprof.busy import BusyError
from pilot.pprof.stacks import Profile, ValueType, as_text, encode
from pilot.pprof.tasks import GOROUTINES, THREADS, Running, counted, one_by_one, tasks, threads
from pilot.pprof.trace import encode_trace

PREFIX = "/debug/pprof/"
LONGEST = 600.0
"""Maximum duration of a profile in seconds."""
_CONTENTION = ValueType("contentions", "count"), ValueType("delay", "nanoseconds")


def _seconds(query: Query, default: float) -> float:
    """Return the duration in seconds that the query requests, or `default`."""
    try:
        seconds = float(query.get("seconds") or default)
    except ValueError:
        raise Refused(400, f"seconds={query['seconds']!r} is not a number\n") from None
    if not math.isfinite(seconds) or not 0 <= seconds <= LONGEST:
        raise Refused(400, f"seconds must be from 0 to {LONGEST:.0f}\n")
    return seconds or default


async def profile(sources: Sources, query: Query) -> Any:
    """Return a CPU profile of the event loop."""
    samples = await _sampled(_seconds(query, 30.0), cpu.INTERVAL)
    return Later(lambda: FileAnswer("profile", encode(cpu.cpu_profile(samples))))


async def trace(sources: Sources, query: Query) -> Any:
    """Return an execution trace of the event loop."""
    samples = await _sampled(_seconds(query, 1.0), cpu.FINE_INTERVAL)
    return Later(lambda: FileAnswer("trace", encode_trace(samples)))


async def _sampled(seconds: float, interval: float) -> cpu.Sampled:
    try:
        return await cpu.sample(seconds, interval)
    except BusyError as error:
        raise _busy(error) from error


def _busy(error: BusyError) -> Refused:
    return Refused(500, f"Could not enable profiling: {error}\n")


def _memory(name: str, shown: int) -> Callable[[Sources, Query], Any]:
    async def page(sources: Sources, query: Query) -> Any:
        seconds = _seconds(query, 0.0)
        try:
            samples = await (memory.sample(seconds) if seconds else memory.now())
        except BusyError as error:
            raise _busy(error) from error
        heap_profile = memory.heap_profile(samples, shown)
        return _profile_answer(name, heap_profile, memory.heap_head(samples), query)

    return page


def _profile_answer(name: str, stack_profile: Profile, head: str, query: Query) -> Later:
    """Return a profile as a file or, if the query contains `debug`, as text."""
    if _debug(query):
        return Later(lambda: TextAnswer(as_text(head, stack_profile)))
    return Later(lambda: FileAnswer(f"{name}-delta" if query.get("seconds") else name, encode(stack_profile)))


def _debug(query: Query) -> int:
    text = query.get("debug", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


async def goroutine(sources: Sources, query: Query) -> Any:
    """Return the stacks of tasks and threads. Equal stacks are shown once, with their number. With debug=2, each stack
    is shown."""
    stacks: list[Running] = [*await collect_all(tasks()), *threads()]
    if _debug(query) >= 2:
        return Later(lambda: TextAnswer(one_by_one(stacks)))
    return _profile_answer("goroutine", counted(stacks, GOROUTINES), f"goroutine profile: total {len(stacks)}", query)


def threadcreate(sources: Sources, query: Query) -> Any:
    """Return the stacks of threads. Equal stacks are shown once, with their number."""
    stacks = list(threads())
    return _profile_answer(
        "threadcreate", counted(stacks, THREADS), f"threadcreate profile: total {len(stacks)}", query
    )


def _empty_profile(name: str, head: str) -> Callable[[Sources, Query], Any]:
    """Return a page that shows an empty profile, for events that Python does not record."""
    empty_profile = Profile(_CONTENTION, {}, _CONTENTION[0], shown=1)
    return lambda sources, query: _profile_answer(name, empty_profile, f"--- {head}:\ncycles/second=1000000000", query)


def cmdline(sources: Sources, query: Query) -> Any:
    """Return the command-line arguments of the process. Secrets are redacted."""
    return TextAnswer("\0".join(redacted_arguments(sys.argv)))


def symbol(sources: Sources, query: Query) -> Any:
    """Report that profiles are already symbolised, so there are no symbols to look up."""
    return TextAnswer("num_symbols: 1\n")


_ABOUT = (
    ("profile", "CPU profile of the event loop: seconds=30", profile),
    ("trace", "Execution trace of the event loop, for ui.perfetto.dev: seconds=1", trace),
    (
        "heap",
        "Memory in use: seconds=N for allocations during that time, debug=1 for text",
        _memory("heap", memory.INUSE_SPACE),
    ),
    ("allocs", "Memory allocations", _memory("allocs", memory.ALLOC_SPACE)),
    ("goroutine", "Tasks and threads with their stacks: debug=1 for text, debug=2 one by one", goroutine),
    ("threadcreate", "Threads with their stacks", threadcreate),
    ("block", "Empty: Python does not record blocking events", _empty_profile("block", "contention")),
    ("mutex", "Empty: Python does not record lock contention", _empty_profile("mutex", "mutex")),
    ("cmdline", "Command line arguments", cmdline),
    ("symbol", "Symbol lookup: profiles contain their symbols", symbol),
)


def index(sources: Sources, query: Query) -> Any:
    """Return the list of profiles as HTML."""
    rows = "".join(
        f'<tr><td><a href="{name}{"?debug=1" if "debug" in about else ""}">{name}</a><td>{about}\n'
        for name, about, _ in _ABOUT
    )
    return Html(
        f"<!doctype html><title>Profiles</title><h1>Profiles</h1>\n<p>go tool pprof http://…{PREFIX}heap\n<table>\n{rows}</table>\n"
    )


def unknown(sources: Sources, query: Query) -> Any:
    """Raise Refused for an unknown profile."""
    raise Refused(404, "Unknown profile\n")


INDEX = Page(PREFIX, "Profiles for go tool pprof", index, listed=False)
PAGES = (INDEX, *(Page(PREFIX + name, about, answer, listed=False) for name, about, answer in _ABOUT))
UNKNOWN = Page(PREFIX + "{profile}", "", unknown, listed=False)

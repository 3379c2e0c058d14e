"""The pages below /debug/pprof/, as Go's net/http/pprof has them. https://pkg.go.dev/net/http/pprof"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from pilot.debug.page import FileAnswer, Html, Later, Page, Query, Refused, TextAnswer
from pilot.debug.slices import all_of
from pilot.debug.sources import Sources
from pilot.lib.shown_process import shown_arguments
from pilot.pprof import cpu, memory
from pilot.pprof.busy import BusyError
from pilot.pprof.stacks import Profile, ValueType, as_text, encode
from pilot.pprof.tasks import GOROUTINES, THREADS, Running, counted, one_by_one, tasks, threads
from pilot.pprof.trace import encode_trace

PREFIX = "/debug/pprof/"
LONGEST = 600.0
"""Seconds that a profile may take."""
_CONTENTION = ValueType("contentions", "count"), ValueType("delay", "nanoseconds")


def _seconds(query: Query, default: float) -> float:
    """Returns how long a profile is to take, by the query."""
    try:
        asked = float(query.get("seconds") or default)
    except ValueError:
        raise Refused(400, f"seconds={query['seconds']!r} is not a number\n") from None
    if not math.isfinite(asked) or not 0 <= asked <= LONGEST:
        raise Refused(400, f"seconds must be from 0 to {LONGEST:.0f}\n")
    return asked or default


async def profile(sources: Sources, query: Query) -> Any:
    """Returns where the event loop spends its time."""
    found = await _sampled(_seconds(query, 30.0), cpu.INTERVAL)
    return Later(lambda: FileAnswer("profile", encode(cpu.cpu_profile(found))))


async def trace(sources: Sources, query: Query) -> Any:
    """Returns what the event loop does one after the other."""
    found = await _sampled(_seconds(query, 1.0), cpu.FINE_INTERVAL)
    return Later(lambda: FileAnswer("trace", encode_trace(found)))


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
            found = await (memory.sample(seconds) if seconds else memory.now())
        except BusyError as error:
            raise _busy(error) from error
        made = memory.heap_profile(found, shown)
        return _kept(name, made, memory.heap_head(found), query)

    return page


def _kept(name: str, made: Profile, head: str, query: Query) -> Later:
    """Returns a profile of what is there, as text where `debug` asks for it."""
    if _debug(query):
        return Later(lambda: TextAnswer(as_text(head, made)))
    return Later(lambda: FileAnswer(f"{name}-delta" if query.get("seconds") else name, encode(made)))


def _debug(query: Query) -> int:
    text = query.get("debug", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 4 else 0


async def goroutine(sources: Sources, query: Query) -> Any:
    """Returns the stacks of tasks and threads, counted; with debug=2 one by one."""
    found: list[Running] = [*await all_of(tasks()), *threads()]
    if _debug(query) >= 2:
        return Later(lambda: TextAnswer(one_by_one(found)))
    return _kept("goroutine", counted(found, GOROUTINES), f"goroutine profile: total {len(found)}", query)


def threadcreate(sources: Sources, query: Query) -> Any:
    """Returns the stacks of threads, counted."""
    found = list(threads())
    return _kept("threadcreate", counted(found, THREADS), f"threadcreate profile: total {len(found)}", query)


def _never(name: str, head: str) -> Callable[[Sources, Query], Any]:
    """Returns a page of what Python does not count: nothing was waited for, as far as anybody knows."""
    made = Profile(_CONTENTION, {}, _CONTENTION[0], shown=1)
    return lambda sources, query: _kept(name, made, f"--- {head}:\ncycles/second=1000000000", query)


def cmdline(sources: Sources, query: Query) -> Any:
    """Returns the arguments of the process, without the secrets in them."""
    return TextAnswer("\0".join(shown_arguments(sys.argv)))


def symbol(sources: Sources, query: Query) -> Any:
    """Returns that names are in the profiles: there is nothing to look up."""
    return TextAnswer("num_symbols: 1\n")


_ABOUT = (
    ("profile", "Where the event loop spends its time: seconds=30", profile),
    ("trace", "What the event loop does, for ui.perfetto.dev: seconds=1", trace),
    (
        "heap",
        "What holds memory: seconds=N for what is allocated meanwhile, debug=1 for text",
        _memory("heap", memory.INUSE_SPACE),
    ),
    ("allocs", "The same, by what was allocated", _memory("allocs", memory.ALLOC_SPACE)),
    ("goroutine", "Tasks and threads with their stacks: debug=1 for text, debug=2 one by one", goroutine),
    ("threadcreate", "Threads with their stacks", threadcreate),
    ("block", "Nothing: Python does not count what threads wait for", _never("block", "contention")),
    ("mutex", "Nothing: Python does not count what locks are waited for", _never("mutex", "mutex")),
    ("cmdline", "The arguments of the process", cmdline),
    ("symbol", "Names of addresses: profiles have them", symbol),
)


def index(sources: Sources, query: Query) -> Any:
    """Returns the list of profiles, for people."""
    rows = "".join(
        f'<tr><td><a href="{name}{"?debug=1" if "debug" in about else ""}">{name}</a><td>{about}\n'
        for name, about, _ in _ABOUT
    )
    return Html(
        f"<!doctype html><title>Profiles</title><h1>Profiles</h1>\n<p>go tool pprof http://…{PREFIX}heap\n<table>\n{rows}</table>\n"
    )


def unknown(sources: Sources, query: Query) -> Any:
    """Refuses a profile that there is not."""
    raise Refused(404, "Unknown profile\n")


INDEX = Page(PREFIX, "Profiles for go tool pprof", index, listed=False)
PAGES = (INDEX, *(Page(PREFIX + name, about, answer, listed=False) for name, about, answer in _ABOUT))
UNKNOWN = Page(PREFIX + "{profile}", "", unknown, listed=False)

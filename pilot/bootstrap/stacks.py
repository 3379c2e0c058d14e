"""What every thread and task does at the moment, written into the log: the answer to SIGUSR1."""

from __future__ import annotations

import asyncio
import itertools

from pilot.lib.log import scope
from pilot.pprof.stacks import Stack
from pilot.pprof.tasks import tasks, threads

MOST_TASKS = 200
_DEPTH = 12
_log = scope("default")


def log_stacks() -> None:
    """Logs a line for each thread, and for each task of the running event loop up to a number: its calls, the innermost first."""
    for thread in threads():
        _log.info("stack of thread %s: %s", thread.name, _line(thread.stack))
    for task in itertools.islice(tasks(), MOST_TASKS):
        _log.info("stack of task %s: %s", task.name, _line(task.stack))
    if (more := len(asyncio.all_tasks()) - MOST_TASKS) > 0:
        _log.info("stacks of %d more tasks are left out", more)


def _line(stack: Stack) -> str:
    return " in ".join(
        f"{call.function} ({'/'.join(call.file.split('/')[-2:])}:{call.line})" for call in stack[:_DEPTH]
    )

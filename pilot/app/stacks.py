"""What every thread and task does at the moment, written into the log: the answer to SIGUSR1."""
from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Iterable
from types import FrameType

from pilot.lib.log import scope

MOST_TASKS = 200
_DEPTH = 12
_log = scope("default")


def log_stacks() -> None:
    """Logs a line for each thread, and for each task of the running event loop up to a number: its calls, the innermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for identifier, frame in sys._current_frames().items():
        _log.info("stack of thread %s: %s", names.get(identifier, str(identifier)), _line(_outwards(frame)))
    tasks = list(asyncio.all_tasks())
    for task in tasks[:MOST_TASKS]:
        _log.info("stack of task %s: %s", task.get_name(), _line(reversed(task.get_stack(limit=_DEPTH))))
    if len(tasks) > MOST_TASKS:
        _log.info("stacks of %d more tasks are left out", len(tasks) - MOST_TASKS)


def _outwards(frame: FrameType | None) -> Iterable[FrameType]:
    """Yields a frame and those that called it, up to a number."""
    for _ in range(_DEPTH):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _line(frames: Iterable[FrameType]) -> str:
    places = (f"{frame.f_code.co_qualname} ({'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno})" for frame in frames)
    return " in ".join(places)

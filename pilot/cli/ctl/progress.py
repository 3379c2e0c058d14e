"""Progress of slow commands, on standard error if it is a terminal.

An installation has a progress bar for each component. Without a terminal, it prints a line for each event.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bars

from pilot.cli.ctl.output import write
from pilot.install.installer import StepProgress

Report = Callable[[StepProgress], None]
ReportStep = Callable[[str, int, int], None]
"""Reports a step: its name, how much of it is done, and the total."""
PATIENCE = 1.0
"""Seconds before progress is shown."""


@contextlib.contextmanager
def progress_reporter() -> Iterator[Report]:
    """Yield a callback that reports the progress of an installation."""
    if not sys.stderr.isatty():
        yield _LineReporter()
        return
    console = Console(stderr=True, highlight=False, emoji=False)
    now = TextColumn("{task.fields[now]}", markup=False)
    columns = (
        TextColumn("{task.fields[mark]}"),
        TextColumn("{task.description}"),
        BarColumn(24),
        MofNCompleteColumn(),
        now,
    )
    with Bars(*columns, console=console) as bars:
        yield _BarReporter(bars)


@contextlib.contextmanager
def step_progress() -> Iterator[ReportStep]:
    """Yield a callback that shows the progress of a step. Nothing is shown without a terminal, or in the first second.

    The progress disappears when the command is finished.
    """
    if not sys.stderr.isatty():
        yield lambda step, done, total: None
        return
    columns = TextColumn("{task.description}", markup=False), BarColumn(24), TaskProgressColumn()
    bars = Bars(*columns, console=Console(stderr=True, highlight=False), transient=True)
    begin, task = time.monotonic(), bars.add_task("")

    def report(step: str, done: int, total: int) -> None:
        if not bars.live.is_started:
            if time.monotonic() - begin < PATIENCE:
                return
            bars.start()
        bars.update(task, description=step, completed=done, total=total)

    try:
        yield report
    finally:
        bars.stop()


class _LineReporter:
    """Prints a line when a component starts, waits or finishes."""

    def __init__(self) -> None:
        self._lines: dict[str, str] = {}

    def __call__(self, progress: StepProgress) -> None:
        previous_line = self._lines.get(progress.step)
        if progress.finished or progress.failed:
            line = f"{'✔' if progress.finished else '✘'} {progress.step}, {_time(progress.seconds)}" + (
                f": {progress.message}" if progress.message else ""
            )
        elif previous_line is None:
            line = f"- {progress.step}: {progress.total} objects"
        elif " ready" in progress.message or "not " in progress.message:
            line = f"- {progress.step}: {progress.message}"
        else:
            return
        if line != previous_line:
            self._lines[progress.step] = line
            write(line)


class _BarReporter:
    """Draws a progress bar for each component."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progress: StepProgress) -> None:
        task = self._tasks.get(progress.step)
        if task is None:
            task = self._tasks[progress.step] = self._bars.add_task(
                progress.step, total=progress.total, mark=" ", now=""
            )
        mark = "[green]✔[/]" if progress.finished else "[red]✘[/]" if progress.failed else " "
        now = _time(progress.seconds) if progress.finished else progress.message
        self._bars.update(task, completed=progress.done, mark=mark, now=now)


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"

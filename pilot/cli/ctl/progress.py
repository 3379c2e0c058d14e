"""Installation progress: a progress bar for each component on a terminal, or else a line for each event."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from pilot.cli.ctl.output import write
from pilot.install.installer import StepProgress

Report = Callable[[StepProgress], None]


@contextlib.contextmanager
def progress_reporter() -> Iterator[Report]:
    """Yield a callback that reports progress."""
    if not sys.stdout.isatty():
        yield _LineReporter()
        return
    console = Console(highlight=False, emoji=False)
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

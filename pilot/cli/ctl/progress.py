"""The progress of an installation: on a terminal a line for each component that fills, anywhere else a line for what has happened."""

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
def shown_progress() -> Iterator[Report]:
    """Gives what is to be told of progress."""
    if not sys.stdout.isatty():
        yield _Lines()
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
        yield _Drawn(bars)


class _Lines:
    """Prints what is new: the begin of a component, what it waits for, and its end."""

    def __init__(self) -> None:
        self._said: dict[str, str] = {}

    def __call__(self, progress: StepProgress) -> None:
        before = self._said.get(progress.step)
        if progress.finished or progress.failed:
            said = f"{'✔' if progress.finished else '✘'} {progress.step}, {_time(progress.seconds)}" + (
                f": {progress.message}" if progress.message else ""
            )
        elif before is None:
            said = f"- {progress.step}: {progress.total} objects"
        elif " ready" in progress.message or "not " in progress.message:
            said = f"- {progress.step}: {progress.message}"
        else:
            return
        if said != before:
            self._said[progress.step] = said
            write(said)


class _Drawn:
    """Draws a bar for each component."""

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

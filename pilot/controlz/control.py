"""What ControlZ is given by the process that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.build_info import BuildInfo


class Control(NamedTuple):
    """`exposition` returns the metrics as text, `end` ends the process in good order, `stacks` does what the signal SIGUSR1 is for: it writes
    into the log what every thread and task does."""

    name: str
    build: BuildInfo
    arguments: Sequence[str]
    environ: Mapping[str, str]
    exposition: Callable[[], bytes]
    end: Callable[[], object]
    stacks: Callable[[], object]

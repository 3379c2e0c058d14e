"""The interface between ControlZ and the process that it controls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.build_info import BuildInfo


class Control(NamedTuple):
    """Facts about the process, and functions that act on it.

    exposition: Returns the metrics as text.
    end: Shuts down the process gracefully.
    stacks: Logs the stacks of all threads and tasks, as SIGUSR1 does.
    """

    name: str
    build: BuildInfo
    arguments: Sequence[str]
    environ: Mapping[str, str]
    exposition: Callable[[], bytes]
    end: Callable[[], object]
    stacks: Callable[[], object]

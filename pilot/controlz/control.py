"""The interface between ControlZ and its process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pilot.lib.build_info import BuildInfo


class Control(NamedTuple):
    """Facts about the process, and functions that act on it.

    exposition: returns the metrics as text.
    end: shuts the process down gracefully.
    stacks: logs the stacks of all threads and tasks, like the signal SIGUSR1.
    """

    name: str
    build: BuildInfo
    arguments: Sequence[str]
    environ: Mapping[str, str]
    exposition: Callable[[], bytes]
    end: Callable[[], object]
    stacks: Callable[[], object]

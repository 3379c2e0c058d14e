"""Memory limits of containers, where this machine allows control groups."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal

V1, V2 = pathlib.Path("/sys/fs/cgroup/memory"), pathlib.Path("/sys/fs/cgroup")


class Cgroup:
    """A control group with all processes of a container. Without control groups, it is empty."""

    def __init__(self, name: str, memory: int) -> None:
        """`memory` is the limit in bytes, or 0."""
        parent = V1 if V1.is_dir() else V2
        self._folder = parent / f"box-{name}"
        self._files = (
            ("memory.limit_in_bytes", "memory.max_usage_in_bytes") if V1.is_dir() else ("memory.max", "memory.peak")
        )
        try:
            self._folder.mkdir(exist_ok=True)
            if memory:
                (self._folder / self._files[0]).write_text(str(memory))
            self.files = [str(self._folder / "cgroup.procs")]
        except OSError:
            self.files = []

    def peak(self) -> int:
        """Return the most memory that the container used, in bytes, or 0 if it is unknown."""
        with contextlib.suppress(OSError, ValueError):
            return int((self._folder / self._files[1]).read_text())
        return 0

    def kill(self) -> None:
        """Kill all processes."""
        with contextlib.suppress(OSError):
            for pid in (self._folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._folder.rmdir()

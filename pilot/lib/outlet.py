"""Where lines of logs go, so that a reader who stops reading stops nobody who logs."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

CAPACITY = 8 << 20
"""Bytes of lines that wait to be written; what comes beyond them is dropped and counted."""
STANDARD = {"stdout": 1, "stderr": 2}
PATIENCE = 1.0
"""Seconds that the end of the process waits for what is not yet written."""
GATHER = 0.02
"""Seconds that lines are gathered before they are written: a thread that wakes for each of a thousand lines costs more than the lines."""


def open_target(target: str) -> int:
    """Returns the file descriptor of stdout, stderr or a file to append to. ValueError where it cannot be opened."""
    if target in STANDARD:
        closed = getattr(sys, f"__{target}__") is None
        return os.open(os.devnull, os.O_WRONLY) if closed else STANDARD[target]
    try:
        return os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(f"cannot log to {target!r}: {error.strerror}") from error


def make_notice(dropped: int) -> logging.LogRecord:
    """Returns the record that stands for those that were dropped."""
    text = f"{dropped} lines are missing here: this log was not read in time"
    return logging.makeLogRecord({"name": "pilot", "levelno": logging.WARNING, "msg": text})


class Outlet(logging.Handler):
    """Writes lines to a file descriptor in a thread of its own. `on_drop` is told how many lines were dropped, from any thread."""

    def __init__(
        self, descriptor: int, capacity: int = CAPACITY, on_drop: Callable[[int], None] = lambda count: None
    ) -> None:
        super().__init__()
        self._descriptor, self._capacity, self.on_drop = descriptor, capacity, on_drop
        self._lines: deque[bytes] = deque()
        self._changed = threading.Condition()
        self._size = self._dropped = 0
        self._writing = self._closed = False
        self._hurry = threading.Event()
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queues a record as a line, or drops it where too many wait."""
        try:
            line = self._line(record)
        except Exception:
            self.handleError(record)
            return
        with self._changed:
            full = self._size + len(line) > self._capacity
            if full:
                self._dropped += 1
            else:
                if not self._lines:
                    self._changed.notify_all()
                self._lines.append(line)
                self._size += len(line)
            self._start_writing()
        if full:
            self.on_drop(1)

    def _start_writing(self) -> None:
        """Starts the thread with the first line. Where there can be no thread yet, lines wait for the next attempt."""
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="log", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Waits until everything is written, `PATIENCE` at most."""
        end = time.monotonic() + PATIENCE
        self._hurry.set()
        with self._changed:
            while (self._lines or self._writing) and (rest := end - time.monotonic()) > 0:
                self._changed.wait(rest)
        self._hurry.clear()

    def close(self) -> None:
        """Writes what it can in a moment, and no more."""
        self.flush()
        self._hurry.set()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        return self.format(record).encode(errors="backslashreplace") + b"\n"

    def _write(self) -> None:
        while (batch := self._take()) is not None:
            lost = 0 if self._put(b"".join(batch)) else len(batch)
            with self._changed:
                self._writing = False
                self._changed.notify_all()
            if lost:
                self.on_drop(lost)

    def _take(self) -> list[bytes] | None:
        """Waits for lines and returns them, with one that tells how many were dropped after them; None when there will be no more."""
        with self._changed:
            while not self._lines:
                if self._closed:
                    return None
                self._changed.wait()
        self._hurry.wait(GATHER)
        with self._changed:
            batch = list(self._lines)
            self._lines.clear()
            self._size = 0
            dropped, self._dropped = self._dropped, 0
            self._writing = True
        return [*batch, self._line(make_notice(dropped))] if dropped else batch

    def _put(self, data: bytes) -> bool:
        """Writes all of it, however long that takes; returns False where it cannot be written at all."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select((), (self._descriptor,), (), 1.0)
            except OSError:
                return False
        return True

"""Log handler that never blocks. If the reader of the log is slow or stopped, the process is not affected."""

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
"""Maximum size of the queued lines in bytes. If the queue is full, lines are dropped and counted."""
STANDARD = {"stdout": 1, "stderr": 2}
PATIENCE = 1.0
"""Maximum number of seconds that the process waits at exit until queued lines have been written."""
GATHER = 0.02
"""Seconds for which lines are collected before they are written, because waking a thread costs more than writing a
line."""


def open_target(target: str) -> int:
    """Return a file descriptor for "stdout", "stderr" or a file, to which lines are appended.

    Raise ValueError if the file cannot be opened.
    """
    if target in STANDARD:
        closed = getattr(sys, f"__{target}__") is None
        return os.open(os.devnull, os.O_WRONLY) if closed else STANDARD[target]
    try:
        return os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ValueError(f"--log_target: cannot log to {target!r}: {error.strerror}") from error


def make_notice(dropped: int) -> logging.LogRecord:
    """Return the record that reports dropped lines."""
    text = f"dropped {dropped} log lines: the log was not read fast enough"
    return logging.makeLogRecord({"name": "pilot", "levelno": logging.WARNING, "msg": text})


class Outlet(logging.Handler):
    """Writes lines to a file descriptor in a separate thread.

    `on_drop` is called with the number of lines that were dropped. It may be called in any thread.
    """

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
        """Queue a record as a line. Drop the record if the queue is full."""
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
        """Start the thread unless it is running. If it cannot be started, the next line tries again to start it."""
        if self._thread is None:
            thread = threading.Thread(target=self._write, name="log", daemon=True)
            with contextlib.suppress(RuntimeError):
                thread.start()
                self._thread = thread

    def flush(self) -> None:
        """Wait for at most `PATIENCE` seconds until all lines have been written."""
        end = time.monotonic() + PATIENCE
        self._hurry.set()
        with self._changed:
            while (self._lines or self._writing) and (rest := end - time.monotonic()) > 0:
                self._changed.wait(rest)
        self._hurry.clear()

    def close(self) -> None:
        """Write lines for at most `PATIENCE` seconds, then stop."""
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
        """Wait for lines and return them. Return None once the handler is closed.

        If lines were dropped, the last line reports this.
        """
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
        """Write all data, however long it takes. Return False if writing fails."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BlockingIOError:
                select.select((), (self._descriptor,), (), 1.0)
            except OSError:
                return False
        return True

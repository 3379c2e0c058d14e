"""A program for worker processes whose jobs exceed limits or crash."""

from __future__ import annotations

import os
import signal


class Program:
    """Runs the job in a byte string: the first word is its name."""

    def __init__(self) -> None:
        self._state = b"none"
        self._count = 0

    def load(self, state: bytes) -> None:
        if state == b"invalid":
            raise ValueError("the state is invalid")
        self._state = state

    def run(self, job: bytes) -> bytes:
        self._count += 1
        match job.partition(b" "):
            case (b"echo", _, text):
                return text
            case (b"size", _, size):
                return b"x" * int(size)
            case (b"state", _, _):
                return self._state
            case (b"count", _, _):
                return str(self._count).encode()
            case (b"pid", _, _):
                return str(os.getpid()).encode()
            case (b"spin", _, _):
                while True:
                    pass
            case (b"grow", _, _):
                return b"".join([b"x" * (1 << 20) for _ in range(4096)])
            case (b"leak", _, size):
                self._leak = b"x" * int(size)
                return b"kept"
            case (b"raise", _, _):
                raise ValueError("an internal error")
            case (b"kill", _, number):
                os.kill(os.getpid(), signal.Signals(int(number)))
            case (b"end", _, file):
                if not os.path.exists(file):
                    open(file, "x").close()
                    os.kill(os.getppid(), signal.SIGKILL)
                    os.kill(os.getpid(), signal.SIGKILL)
        return b""


def create_program() -> Program:
    return Program()

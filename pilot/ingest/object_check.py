"""The program that worker processes run to check large objects of API servers."""

from __future__ import annotations

import io
import pickle
import time
from typing import NamedTuple

import msgspec

from pilot.config.catalogue import CATALOGUE
from pilot.config.problem import Problem
from pilot.ingest.decode import DocumentOrigin, decode_object


class CheckJob(NamedTuple):
    """A job that checks an object, which follows the job as JSON. `table` is the table of its kind."""

    table: str
    origin: DocumentOrigin


class CheckResult(msgspec.Struct, array_like=True, frozen=True):
    """The problems of an object.

    `is_accepted` says whether the object is valid and not ignored. `is_refused` says whether it is invalid and has a
    row. `is_too_deep` says whether it cannot be decoded because of its nesting. `seconds` is the CPU time of the check.
    """

    problems: tuple[Problem, ...] = ()
    is_accepted: bool = False
    is_refused: bool = False
    is_too_deep: bool = False
    seconds: float = 0.0


class CheckProgram:
    """Checks objects. It has no state."""

    def load(self, state: bytes) -> None:
        """Do nothing."""

    def run(self, job: bytes) -> bytes:
        """Return the CheckResult of a pickled CheckJob and the object after it."""
        stream = io.BytesIO(job)
        table, origin = pickle.load(stream)  # noqa: S301 -- written by the parent process
        kind = CATALOGUE.find_by_table(table)
        assert kind is not None
        started = time.process_time()
        try:
            decoded = decode_object(kind, msgspec.json.decode(stream.read()), origin)
        except RecursionError:
            return msgspec.msgpack.encode(CheckResult(is_too_deep=True))
        seconds = time.process_time() - started
        return msgspec.msgpack.encode(
            CheckResult(decoded.problems, bool(decoded.entries), bool(decoded.refused), seconds=seconds)
        )


def create_program() -> CheckProgram:
    """Return the program of a worker."""
    return CheckProgram()

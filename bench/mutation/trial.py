"""Trials of mutants. Each runs in a fork of a process that has collected all tests, so that a trial only costs its
tests.

The fork replaces the code of existing functions. Code that only runs at import (constants, classes, defaults) cannot be
changed like this: such a mutant is `IMPORT_TIME` and needs a separate copy of the tree.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pathlib
import signal
import time
from collections.abc import Iterator, Sequence
from types import CodeType, FunctionType
from typing import NamedTuple

import pytest

from bench.mutation.changes import UNCHANGED, Mutant, mutated
from bench.mutation.scratch import scratch_directory

ROOT = pathlib.Path(__file__).resolve().parents[2]
SURVIVED, CAUGHT, BROKEN, IMPORT_TIME = 0, 1, 2, 3  # exit status of a fork; BROKEN: the trial itself failed
TIMEOUT_FACTOR, MIN_SECONDS = 6.0, 30.0  # timeout, relative to the time without a mutation


class Job(NamedTuple):
    """A mutant and the tests to run, in order. `seconds` is their duration without the mutation."""

    mutant: Mutant
    tests: list[str]
    seconds: float


def write_jobs(path: pathlib.Path, jobs: Sequence[Job]) -> None:
    """Write the jobs to a file."""
    path.write_text(json.dumps([[str(job.mutant.path), *job.mutant[1:], job.tests, job.seconds] for job in jobs]))


def read_jobs(path: pathlib.Path) -> list[Job]:
    """Read the jobs of a file written by `write_jobs`."""
    return [
        Job(Mutant(pathlib.Path(file), *rest), tests, seconds)
        for file, *rest, tests, seconds in json.loads(path.read_text())
    ]


Code = tuple[str, str, int]  # file, qualified name, first line


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


class Functions:
    """The functions of the product in this process, by their code."""

    def __init__(self) -> None:
        self._by_code: dict[Code, list[FunctionType]] = {}
        for thing in gc.get_objects():
            if isinstance(thing, FunctionType) and thing.__code__.co_filename.startswith(str(ROOT)):
                code = thing.__code__
                self._by_code.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(thing)

    def change(self, mutant: Mutant) -> bool:
        """Replace the code of a mutant's functions.

        Return False if no function differs, because the change affects import time.
        """
        name = str(ROOT / mutant.path)
        changed = False
        for code in _codes(compile(mutated(mutant, ROOT), name, "exec", dont_inherit=True)):
            for function in self._by_code.get((name, code.co_qualname, code.co_firstlineno), ()):
                if function.__code__ != code:
                    try:
                        function.__code__ = code
                    except ValueError:  # the closure has other variables
                        return False
                    changed = True
        return changed


class Trials:
    """A pytest plugin that runs each job in a fork, instead of the test loop.

    Results are lines "NUMBER EXIT_STATUS" of a file.
    """

    def __init__(self, jobs: Sequence[Job], results: pathlib.Path) -> None:
        self._jobs = jobs
        self._results = results
        self._failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed |= report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if (threads := len(list(pathlib.Path("/proc/self/task").iterdir()))) > 1:
            raise pytest.UsageError(f"{threads} threads after collection: a fork would only have one of them")
        signal.signal(signal.SIGINT, signal.default_int_handler)  # background processes ignore SIGINT by default
        items = {item.nodeid: item for item in session.items}
        functions = Functions()
        gc.freeze()
        with self._results.open("a") as results:
            for number, job in enumerate(self._jobs):
                selected = [items[test] for test in job.tests if test in items]
                exit_code = self._fork(functions, job, selected)
                results.write(f"{number} {exit_code}\n")
                results.flush()
        return True

    def _fork(self, functions: Functions, job: Job, items: Sequence[pytest.Item]) -> int:
        """Run a job in a fork, and return its exit status. A timeout catches the mutant."""
        with scratch_directory() as scratch:
            return self._fork_in(scratch, functions, job, items)

    def _fork_in(self, scratch: str, functions: Functions, job: Job, items: Sequence[pytest.Item]) -> int:
        child = os.fork()
        if child == 0:
            os.chdir(scratch)
            os._exit(self._try(functions, job, items))
        deadline = time.monotonic() + max(MIN_SECONDS, TIMEOUT_FACTOR * job.seconds)
        exit_code = None
        try:
            while exit_code is None and time.monotonic() < deadline:
                pid, status = os.waitpid(child, os.WNOHANG)
                exit_code = os.waitstatus_to_exitcode(status) if pid else None
                time.sleep(0.005)
        finally:
            with contextlib.suppress(ProcessLookupError):  # including child processes of the tests
                os.killpg(child, signal.SIGKILL)
        if exit_code is None:
            os.waitpid(child, 0)
        return CAUGHT if exit_code is None else exit_code

    def _try(self, functions: Functions, job: Job, items: Sequence[pytest.Item]) -> int:
        """Run the tests in the fork, and return the exit status."""
        try:
            os.setsid()
            for stream in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
            if job.mutant.change != UNCHANGED and not functions.change(job.mutant):
                return IMPORT_TIME
        except Exception:
            return BROKEN
        try:
            for item, next_item in zip(items, [*items[1:], None], strict=True):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
                if self._failed:
                    return CAUGHT
            return SURVIVED
        except BaseException:
            return CAUGHT


def pytest_configure(config: pytest.Config) -> None:
    """Register the trials if `MUTATION_JOBS` names a file of jobs."""
    if jobs := os.environ.get("MUTATION_JOBS"):
        path = pathlib.Path(jobs)
        config.pluginmanager.register(Trials(read_jobs(path), path.with_suffix(".results")))

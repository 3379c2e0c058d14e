"""Which tests execute which lines of the product, from one run of the tests under coverage.py with a context a test."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import subprocess
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple

import pytest

from bench.mutation.scratch import scratch_directory, test_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
WHOLE = "::*"  # ends the context of what a fixture executes that all tests of a file share
MEASURED = ("pilot", "ca", "webhook", "gotemplate")
DATA, OUTCOMES = "coverage.data", "outcomes.json"


class Outcome(NamedTuple):
    """How a test ended without any change. `seconds` count its own fixtures too."""

    passed: bool
    seconds: float


class CoverageMap:
    """Answers which tests reach a line; those that failed without a change, or take longer than `longest` seconds, are left out."""

    def __init__(self, folder: pathlib.Path, longest: float = 30.0) -> None:
        import coverage  # a bench alone needs it

        self._data = coverage.CoverageData(str(folder / DATA))
        self._data.read()
        outcomes = {test: Outcome(*found) for test, found in json.loads((folder / OUTCOMES).read_text()).items()}
        self.seconds = {
            test: found.seconds for test, found in outcomes.items() if found.passed and found.seconds <= longest
        }
        self._of_file: dict[str, list[str]] = {}
        for test in self.seconds:
            self._of_file.setdefault(test.partition("::")[0], []).append(test)
        self._contexts: dict[pathlib.Path, Mapping[int, list[str]]] = {}

    def reaching(self, path: pathlib.Path, lines: range | None = None) -> list[str]:
        """The tests that execute one of these lines of a file, or any, the quickest first. `path` is relative to ROOT."""
        if path not in self._contexts:
            self._contexts[path] = self._data.contexts_by_lineno(str(ROOT / path))
        at = self._contexts[path]
        contexts = {context for line in (at if lines is None else lines) for context in at.get(line, ())}
        tests = {test for context in contexts for test in self._tests(context)}
        return sorted(tests, key=lambda test: (self.seconds[test], test))

    def of_file(self, file: str) -> list[str]:
        """The tests of a file, whatever they reach."""
        return self._of_file.get(file, [])

    def _tests(self, context: str) -> list[str]:
        if context.endswith(WHOLE):
            return self.of_file(context.removesuffix(WHOLE))
        return [context] if context in self.seconds else []


def measure(folder: pathlib.Path, tests: list[str]) -> None:
    """Run these test files once in a process of their own; what `CoverageMap` reads is in `folder` afterwards."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [str(ROOT / test) for test in tests]
    command = [*test_command(ROOT), "-q", "-p", "no:cacheprovider", "-p", "bench.mutation.coverage_map", *files]
    environment = {**os.environ, "PYISTIOD_SEED": "1", "PYTHONPATH": str(ROOT), "COVERAGE_MAP": str(folder.resolve())}
    with scratch_directory() as scratch:
        subprocess.run(command, cwd=scratch, env=environment, check=False)  # tests that fail are left out


# -- in the process that runs the tests --------------------------------------------------------------------------------


class _Recorder:
    """A plugin of pytest: each test, and each fixture that a file shares, is a context of coverage.py's."""

    def __init__(self, folder: pathlib.Path) -> None:
        import coverage

        self._folder = folder
        self._coverage = coverage.Coverage(
            data_file=str(folder / DATA), source=[str(ROOT / name) for name in MEASURED], config_file=False
        )
        self._outcomes: dict[str, Outcome] = {}
        self._caches: list[Any] = []
        self._coverage.start()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Tests that say a longer timeout of their own are too slow for a trial."""
        slow = [item for item in items if item.get_closest_marker("timeout")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
        self._caches = [
            thing
            for thing in gc.get_objects()
            if hasattr(type(thing), "cache_clear") and thing.__module__.startswith(MEASURED)
        ]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, None, None]:
        for cached in self._caches:  # in the fork of a trial nothing is cached yet
            cached.cache_clear()
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context("")

    @pytest.hookimpl(hookwrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, None, None]:
        if fixturedef.scope == "function":
            yield
            return
        test = request._pyfuncitem.nodeid
        self._coverage.switch_context(test.partition("::")[0] + WHOLE)
        yield
        self._coverage.switch_context(test)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        before = self._outcomes.get(report.nodeid, Outcome(True, 0.0))
        self._outcomes[report.nodeid] = Outcome(before.passed and report.passed, before.seconds + report.duration)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        (self._folder / OUTCOMES).write_text(json.dumps(self._outcomes))


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, where `measure` said into which folder."""
    if folder := os.environ.get("COVERAGE_MAP"):
        config.pluginmanager.register(_Recorder(pathlib.Path(folder)))

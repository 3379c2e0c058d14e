"""A map from lines of the product to the tests that execute them, from a run under coverage.py with one context per
test.
"""

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
WHOLE = "::*"  # suffix of the context of a fixture that all tests of a file share
MEASURED = ("pilot", "ca", "webhook", "gotemplate")
DATA, OUTCOMES = "coverage.data", "outcomes.json"


class Outcome(NamedTuple):
    """The result of a test without mutations. `seconds` includes its fixtures."""

    passed: bool
    seconds: float


class CoverageMap:
    """Finds the tests that execute a line, except tests that fail without a mutation or take longer than `longest`
    seconds.
    """

    def __init__(self, folder: pathlib.Path, longest: float = 30.0) -> None:
        import coverage  # optional dependency

        self._data = coverage.CoverageData(str(folder / DATA))
        self._data.read()
        outcomes = {test: Outcome(*outcome) for test, outcome in json.loads((folder / OUTCOMES).read_text()).items()}
        self.seconds = {
            test: outcome.seconds for test, outcome in outcomes.items() if outcome.passed and outcome.seconds <= longest
        }
        self._tests_by_file: dict[str, list[str]] = {}
        for test in self.seconds:
            self._tests_by_file.setdefault(test.partition("::")[0], []).append(test)
        self._contexts: dict[pathlib.Path, Mapping[int, list[str]]] = {}

    def reaching(self, path: pathlib.Path, lines: range | None = None) -> list[str]:
        """Return the tests that execute one of these lines of a file, or any line, the fastest first.

        `path` is relative to ROOT.
        """
        if path not in self._contexts:
            self._contexts[path] = self._data.contexts_by_lineno(str(ROOT / path))
        contexts_by_line = self._contexts[path]
        contexts = {
            context
            for line in (contexts_by_line if lines is None else lines)
            for context in contexts_by_line.get(line, ())
        }
        tests = {test for context in contexts for test in self._tests(context)}
        return sorted(tests, key=lambda test: (self.seconds[test], test))

    def tests_of_file(self, file: str) -> list[str]:
        """Return the tests in a file."""
        return self._tests_by_file.get(file, [])

    def _tests(self, context: str) -> list[str]:
        if context.endswith(WHOLE):
            return self.tests_of_file(context.removesuffix(WHOLE))
        return [context] if context in self.seconds else []


def measure(folder: pathlib.Path, tests: list[str]) -> None:
    """Run these test files in a separate process, and write the data for `CoverageMap` to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    files = [str(ROOT / test) for test in tests]
    command = [*test_command(ROOT), "-q", "-p", "no:cacheprovider", "-p", "bench.mutation.coverage_map", *files]
    environment = {**os.environ, "PYISTIOD_SEED": "1", "PYTHONPATH": str(ROOT), "COVERAGE_MAP": str(folder.resolve())}
    with scratch_directory() as scratch:
        subprocess.run(command, cwd=scratch, env=environment, check=False)  # failing tests are excluded later


# -- pytest plugin -----------------------------------------------------------------------------------------------------


class _Recorder:
    """A pytest plugin that sets a coverage context for each test and each shared fixture."""

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
        """Exclude tests with a timeout marker, which are too slow for trials."""
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
        for cached in self._caches:  # trials run in a fork with empty caches
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
        previous = self._outcomes.get(report.nodeid, Outcome(True, 0.0))
        self._outcomes[report.nodeid] = Outcome(previous.passed and report.passed, previous.seconds + report.duration)

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        (self._folder / OUTCOMES).write_text(json.dumps(self._outcomes))


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder if `COVERAGE_MAP` names a folder."""
    if folder := os.environ.get("COVERAGE_MAP"):
        config.pluginmanager.register(_Recorder(pathlib.Path(folder)))

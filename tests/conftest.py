"""Options of every test. Random tests take another seed each run, printed at the end; PYISTIOD_SEED repeats one."""

from __future__ import annotations

import contextlib
import logging
import os
import random
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import core

from pilot.lib import log
from pilot.lib.outlet import Outlet

# Children of the tests run code of Python's before they execute anything, to enter a network namespace. gRPC would wake in them and abort.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Examples of earlier runs would make a seed give other tests than it gave before.
hypothesis.settings.register_profile("repeatable", deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write golden files again from what is built now, and delete orphans"
    )
    parser.addoption(
        "--shuffle", action="store_true", help="run the files, and the tests of each, in an order that the seed decides"
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PYISTIOD_SEED", str(random.SystemRandom().randrange(1 << 32)))  # workers inherit it
    core.global_force_seed = int(os.environ["PYISTIOD_SEED"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Shuffle by file, so that what a file sets up for all its tests is set up once."""
    if config.getoption("--shuffle"):
        choose = random.Random(os.environ["PYISTIOD_SEED"])
        files = sorted({item.path for item in items})
        choose.shuffle(files)
        place = {path: number for number, path in enumerate(files)}
        choose.shuffle(items)
        items.sort(key=lambda item: place[item.path])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(
        f"random seed: PYISTIOD_SEED={os.environ['PYISTIOD_SEED']}"
    )  # a header would not show with -q


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ["PYISTIOD_SEED"])


@pytest.fixture(scope="session", autouse=True)
def scratch_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Make the working directory one where a test does no harm if it writes to a relative path."""
    with contextlib.chdir(tmp_path_factory.mktemp("working-directory")):
        yield


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Logging is as it was when a test has configured it, or has run a program that does; the next test may look at what is logged."""
    root = log.scope("default")
    handlers, propagate = root.handlers[:], root.propagate
    levels = {name: logging.getLogger(name).level for name in _scopes()}
    yield
    for handler in root.handlers:
        if handler not in handlers and isinstance(handler, Outlet):
            handler.close()
    root.handlers[:], root.propagate = handlers, propagate
    for name in _scopes():
        logger = logging.getLogger(name)
        if logger.level != levels.get(name, logging.NOTSET):
            logger.setLevel(levels.get(name, logging.NOTSET))


def _scopes() -> list[str]:
    return [name for name in logging.root.manager.loggerDict if name == log.ROOT or name.startswith(f"{log.ROOT}.")]

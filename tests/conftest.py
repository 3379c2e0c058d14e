"""Options and fixtures of all tests. Random tests use a new seed in each run, printed at the end; PYISTIOD_SEED repeats a run."""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import random
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import core

from pilot.lib.logging import log
from pilot.lib.logging.outlet import Outlet

pytest.register_assert_rewrite("testing")

# Children run Python code between fork and exec, to enter a network namespace. With fork support gRPC would wake up there and abort.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Reading the machine's 140 trusted certificates takes 40 ms for each of the thousands of TLS contexts. No test needs them.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)

# Without a database of earlier examples, a seed always gives the same tests.
hypothesis.settings.register_profile("repeatable", deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


SLOW = "slow: starts processes, or takes seconds; `dev.py test fast` leaves it out"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write golden files from the current output, and delete orphans"
    )
    parser.addoption(
        "--shuffle", action="store_true", help="run the files and their tests in an order drawn from the seed"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", SLOW)
    os.environ.setdefault("PYISTIOD_SEED", str(random.SystemRandom().randrange(1 << 32)))  # workers inherit it
    core.global_force_seed = int(os.environ["PYISTIOD_SEED"])  # type: ignore[assignment]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers: one more than cores, because tests with processes mostly wait."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Decide the order of files, and with --shuffle of the tests in each. A file stays together, so its fixtures are set up once.

    Tests with processes mostly wait and others mostly compute, so the former are spread evenly over the run.
    """
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker("slow")
    files = list(dict.fromkeys(item.path for item in items))
    if config.getoption("--shuffle"):
        rng = random.Random(os.environ["PYISTIOD_SEED"])
        files.sort()
        rng.shuffle(files)
        rng.shuffle(items)
    else:
        process_bound = [path for path in files if "e2e" in path.parts]
        cpu_bound = [path for path in files if "e2e" not in path.parts]
        share = {path: i / len(group) for group in (process_bound, cpu_bound) for i, path in enumerate(group)}
        files = sorted(process_bound + cpu_bound, key=share.__getitem__)
    position = {path: number for number, path in enumerate(files)}
    items.sort(key=lambda item: position[item.path])


def pytest_collection_finish() -> None:
    """Exempt the collected tests and imported modules from garbage collection, which is faster then.

    A control plane freezes its objects after its first load. In this process they would never be freed, so its call has no effect.
    """
    gc.collect()
    gc.freeze()
    gc.freeze = lambda: None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    # A header would not show with -q.
    terminalreporter.write_line(f"random seed: PYISTIOD_SEED={os.environ['PYISTIOD_SEED']}")


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ["PYISTIOD_SEED"])


@pytest.fixture(scope="session", autouse=True)
def scratch_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run the tests in a temporary directory, so that writes to relative paths do no harm."""
    with contextlib.chdir(tmp_path_factory.mktemp("working-directory")):
        yield


@pytest.fixture(autouse=True)
def gc_threshold() -> Iterator[None]:
    """Restore the frequency of garbage collection, which a control plane lowers."""
    threshold = gc.get_threshold()
    yield
    if gc.get_threshold() != threshold:
        gc.set_threshold(*threshold)


@pytest.fixture(autouse=True)
def logging_configuration() -> Iterator[None]:
    """Restore the logging configuration after each test, because the next test may check log records."""
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

"""Options of every test. Random tests take another seed each run, printed at the end; PYISTIOD_SEED repeats one."""
from __future__ import annotations

import os
import random

import hypothesis
import pytest
from hypothesis import core

# Children of the tests run code of Python's before they execute anything, to enter a network namespace. gRPC would wake in them and abort.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# Examples of earlier runs would make a seed give other tests than it gave before.
hypothesis.settings.register_profile("repeatable", deadline=None, database=None)
hypothesis.settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden files again from what is built now, and delete orphans")
    parser.addoption("--shuffle", action="store_true", help="run the files, and the tests of each, in an order that the seed decides")


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
    terminalreporter.write_line(f"random seed: PYISTIOD_SEED={os.environ['PYISTIOD_SEED']}")  # a header would not show with -q


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ["PYISTIOD_SEED"])

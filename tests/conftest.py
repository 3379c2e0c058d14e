"""Options of every test. Random tests take another seed each run, printed at the end; PYISTIOD_SEED repeats one."""
from __future__ import annotations

import os
import random

import hypothesis
import pytest

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="write golden files again from what is built now, and delete orphans")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("PYISTIOD_SEED", str(random.SystemRandom().randrange(1 << 32)))  # workers inherit it


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.write_line(f"random seed: PYISTIOD_SEED={os.environ['PYISTIOD_SEED']}")  # a header would not show with -q


@pytest.fixture(scope="session")
def seed() -> int:
    return int(os.environ["PYISTIOD_SEED"])

"""Logging as it was before a test that configures it."""
from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from pilot.lib import log
from pilot.lib.outlet import Outlet


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    root = log.scope("default")
    handlers, level, propagate = root.handlers[:], root.level, root.propagate
    yield
    for handler in root.handlers:
        if handler not in handlers and isinstance(handler, Outlet):
            handler.close()
    root.handlers[:], root.propagate = handlers, propagate
    root.setLevel(level)
    for name in ("ads", "config"):
        log.scope(name).setLevel(logging.NOTSET)

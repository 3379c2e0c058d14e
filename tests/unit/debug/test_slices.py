"""Pauses of the garbage collector during large responses."""

from __future__ import annotations

import gc
import time

import pytest

from pilot.debug.slices import without_collections


def test_collection_pauses_during_large_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Collection is disabled for at most ten seconds, however many responses overlap."""
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    states = []
    with without_collections():
        states.append(gc.isenabled())
        now = 110.0
        with without_collections():
            states.append(gc.isenabled())
        states.append(gc.isenabled())
        now = 110.1
        with without_collections():
            states.append(gc.isenabled())
    assert states == [False, False, False, True]
    assert gc.isenabled()
    now = 200.0
    with without_collections():
        assert not gc.isenabled()
        now = 205.0
        with without_collections():
            assert not gc.isenabled()
    assert gc.isenabled()


def test_large_responses_do_not_resume_a_collection_that_others_suspended() -> None:
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()

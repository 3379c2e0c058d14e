"""Runs pilotctl against prepared pages, for every test in this folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import main

Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*words: str, status: int = 0) -> str:
        assert main(words) == status
        return capsys.readouterr().out

    return run


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Responses of the control plane by path. Exceptions are raised."""
    responses: dict[str, Any] = {}

    def respond(_: PageClient, path: str, **query: str) -> Any:
        value = responses[path]
        if isinstance(value, Exception):
            raise value
        return value

    monkeypatch.setattr(PageClient, "get", respond)
    monkeypatch.setattr(PageClient, "text", respond)
    return responses

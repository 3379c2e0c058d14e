"""Manual updates of the dashboard, for every test in this folder."""

from __future__ import annotations

import pytest

from pilot.debug.dashboard import stream


@pytest.fixture(autouse=True)
def _manual_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the periodic updates, so that a test triggers them."""
    monkeypatch.setattr(stream, "SECONDS", 3600.0)

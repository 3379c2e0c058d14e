"""Isolates commands from the kubeconfig of the user who runs the tests."""

from __future__ import annotations

import pathlib

import pytest


@pytest.fixture(autouse=True)
def no_kubeconfig(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """Without a kubeconfig, commands connect to this machine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)

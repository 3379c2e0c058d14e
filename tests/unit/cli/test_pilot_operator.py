"""The command line of pilot-operator."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from pilot.cli.pilot_operator import main
from pilot.cli.pilot_operator import main as pilot_operator


def test_server_command_requires_watch_namespace(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCH_NAMESPACE", raising=False)
    assert main(["server"]) == 1
    assert (
        "WATCH_NAMESPACE must be set to comma-separated namespaces, or to an empty value for all"
        in capsys.readouterr().err
    )
    assert main(["server", "--help"]) == 0
    assert "WATCH_NAMESPACE" in capsys.readouterr().out
    assert main(["collateral"]) == 0


def test_operator_reports_system_errors(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*_: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(import_module("pilot.operator.operator_process"), "run", run)
    assert pilot_operator(["server"]) == 1
    assert capsys.readouterr().err == "Error: cannot start: Too many open files\n"

"""Progress of slow commands."""

from __future__ import annotations

import io
import itertools
import sys
import time

import pytest

from pilot.cli.ctl.progress import progress_reporter, step_progress
from pilot.install.installer import StepProgress


def test_progress_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_reporter() as report:
        for progress in (
            StepProgress("Base", 0, 3, "", 0.1),
            StepProgress("Base", 1, 3, "applying", 0.2),
            StepProgress("Base", 3, 3, "", 0.31, finished=True),
            StepProgress("Pilot", 0, 2, "", 0.0),
            StepProgress("Pilot", 1, 2, "istiod: 0 of 1 ready", 1.0),
            StepProgress("Pilot", 1, 2, "istiod: 0 of 1 ready", 2.0),
            StepProgress("Pilot", 1, 2, "istiod not found", 3.0),
            StepProgress("Pilot", 1, 2, "it takes too long", 125.0, failed=True),
        ):
            report(progress)
    assert capsys.readouterr().out.splitlines() == [
        "- Base: 3 objects",
        "✔ Base, 0.3 s",
        "- Pilot: 2 objects",
        "- Pilot: istiod: 0 of 1 ready",
        "- Pilot: istiod not found",
        "✘ Pilot, 2 min 5 s: it takes too long",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let each step take this many seconds."""
    now = itertools.count(0.0, seconds)
    monkeypatch.setattr(time, "monotonic", lambda: next(now))


def steps() -> None:
    with step_progress() as report:
        for done in range(1, 5):
            report("Checking", done, 4)


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, False), (0.5, True)])
def test_steps_are_shown_on_a_terminal_after_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: float, expected: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    clock(monkeypatch, seconds)
    steps()
    assert ("Checking" in terminal.getvalue()) is expected
    assert capsys.readouterr().out == ""


def test_steps_are_not_shown_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock(monkeypatch, 10)
    steps()
    assert tuple(capsys.readouterr()) == ("", "")


def test_installation_has_bars_on_the_terminal_of_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress_reporter() as report:
        report(StepProgress("Base", 3, 3, "", 0.31, finished=True))
    assert "Base" in terminal.getvalue()
    assert capsys.readouterr().out == ""

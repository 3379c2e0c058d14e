"""Progress of an installation."""

from __future__ import annotations

import pytest

from pilot.cli.ctl.progress import progress_reporter
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

"""The list of certificates that the control plane knows."""

from __future__ import annotations

import time
from typing import Any

from tests.unit.cli.ctl.conftest import Run

DAY = 86_400


def certificate(name: str, days: float, *used_by: str) -> dict[str, Any]:
    return {"name": name, "begins": 0.0, "ends": time.time() + days * DAY + 60, "usedBy": used_by}


def test_certificates_that_expire_first_are_on_top(run: Run, pages: dict[str, Any]) -> None:
    pages["certificatez"] = [
        certificate("root of the mesh", 3650),
        certificate("Secret edge/new", 1, "Gateway a/gw", "Gateway a/other"),
        certificate("Secret edge/old", -3),
    ]
    *lines, summary, end = run("certificates").splitlines()
    assert summary == "1 expired, 1 expires within a week."
    assert end.startswith("Certificates of workloads are not listed")
    head, *rows = [line.split("  ") for line in lines]
    assert [part.strip() for part in head if part] == ["CERTIFICATE", "USED BY", "EXPIRES", "LEFT"]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    assert [(row[0], row[1], row[3]) for row in cells] == [
        ("Secret edge/old", "not used", "EXPIRED"),
        ("Secret edge/new", "Gateway a/gw, Gateway a/other", "24 hours"),
        ("root of the mesh", "all workloads", "3650 days"),
    ]


def test_lack_of_certificates_is_reported(run: Run, pages: dict[str, Any]) -> None:
    pages["certificatez"] = []
    first, end = run("certificates").splitlines()
    assert first == "The control plane knows no certificates."
    assert end.startswith("Certificates of workloads are not listed")

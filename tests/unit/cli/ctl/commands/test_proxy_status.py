"""Output of pilotctl proxy-status."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest
from click.testing import CliRunner

from pilot.cli.ctl.client import PageClient
from pilot.cli.ctl.commands import proxy_status
from pilot.cli.pilotctl import pilotctl
from pilot.lib.xds_types import BY_SHORT_NAME
from tests.unit.cli.ctl.conftest import Run


def test_watched_status_is_redrawn_until_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []

    def sleep(seconds: float) -> None:
        sleeps.append(seconds)
        if len(sleeps) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    with mock.patch.object(PageClient, "get", return_value=[]):
        result = CliRunner().invoke(pilotctl, ["proxy-status", "--watch"])
    assert result.output.count("No proxy is connected") == 2
    assert sleeps == [proxy_status.SECONDS] * 2


def test_proxy_status_of_one_proxy(run: Run, pages: dict[str, Any]) -> None:
    resources = {
        BY_SHORT_NAME["cds"]: {"sent": "b", "acked": "a", "sentTime": "T"},
        BY_SHORT_NAME["eds"]: {},
        BY_SHORT_NAME["lds"]: {"sent": "b", "lastError": "bad"},
    }
    proxy = {
        "proxy": "tea-1.shop",
        "proxy_type": "sidecar",
        "istio_version": "1.28.0",
        "cluster_id": "west",
        "resources": resources,
    }
    pages["syncz"], pages["config_dump"] = [proxy], {}
    assert [line.split() for line in run("proxy-status", "tea-1").splitlines()] == [
        ["tea-1.shop", "(sidecar,", "1.28.0)", "in", "west"],
        ["TYPE", "STATE", "SENT", "ACKNOWLEDGED", "TIME"],
        ["CDS", "STALE", "b", "a", "T"],
        ["EDS", "NOT", "SENT", "-", "-", "-"],
        ["LDS", "ERROR", "b", "-", "-"],
        ["tea-1.shop", "rejected", "its", "lds:", "bad"],
    ]


def test_difference_has_seven_context_lines() -> None:
    ours = [{"name": "b", "@type": "x", "list": list(range(20)), "text": "é"}, {"name": "a", "n": 1.0}]
    theirs = [{"n": 1, "name": "a"}, {"name": "b", "list": [*range(10), 99, *range(11, 20)], "text": "é", "@type": "y"}]
    lines = proxy_status._difference("Routes", ours, theirs)
    context = [[f"       {n}," for n in numbers] for numbers in (range(3, 10), range(11, 18))]
    assert lines == [
        "--- Istiod Routes",
        "+++ Envoy Routes",
        "@@ -11,15 +11,15 @@",
        *context[0],
        "-      10,",
        "+      99,",
        *context[1],
    ]
    assert proxy_status._lines(ours)[:5] == ["[", "  {", '    "n": 1,', '    "name": "a"', "  },"]
    assert '    "text": "é"' in proxy_status._lines(ours)

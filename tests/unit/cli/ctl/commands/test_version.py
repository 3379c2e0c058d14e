"""Output of pilotctl version."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import pytest

from pilot.cli.ctl.client import CommandError
from pilot.lib.build_info import BuildInfo, build_info
from tests.unit.cli.ctl.conftest import Run

version = import_module("pilot.cli.ctl.commands.version")


@pytest.mark.parametrize(
    ("proxies", "line"),
    [
        ([], "none (no proxies are connected)"),
        (["1.28.0"], "1.28.0 (1 proxy)"),
        (["1.28.0", "1.27.1", "1.28.0"], "1.27.1 (1 proxy), 1.28.0 (2 proxies)"),
    ],
)
def test_proxy_versions_are_counted(run: Run, pages: dict[str, Any], proxies: list[str], line: str) -> None:
    pages["version"] = "2-unknown-unknown\n"
    pages["syncz"] = [{"proxy": f"p{n}", "istio_version": version} for n, version in enumerate(proxies)]
    assert run("version").splitlines() == [
        f"client version: {build_info().version}",
        "control plane version: 2",
        f"data plane version: {line}",
    ]


def test_version_of_an_unreachable_control_plane(run: Run, pages: dict[str, Any]) -> None:
    pages["version"] = CommandError("nobody answers")
    assert run("version").splitlines() == [
        f"client version: {build_info().version}",
        "control plane version: nobody answers",
    ]


def test_versions_have_the_fields_of_istioctl(run: Run, pages: dict[str, Any]) -> None:
    pages["version"] = "2-abc-Clean"
    pages["syncz"] = [
        {"proxy": name, "istio_version": "1.32.0", "proxy_type": kind}
        for name, kind in (("in.a", "router"), ("web.a", "sidecar"), ("way.a", "waypoint"))
    ]
    value = json.loads(run("version", "-o", "json"))
    info = {"version": "2", "revision": "abc", "status": "Clean", "tag": "2"}
    assert value["meshVersion"] == [{"Component": "pilot", "Revision": "unknown", "Info": info}]
    assert value["clientVersion"]["version"] == value["clientVersion"]["tag"] == build_info().version
    assert [proxy["Type"] for proxy in value["dataPlaneVersion"]] == ["gateway", "sidecar", "waypoint"]
    assert "control plane version: 2-abc-Clean" in run("version").splitlines()


def test_the_long_version_has_the_commit(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "build_info", lambda: BuildInfo("1.0.0", "abc", "Clean"))
    assert run("version", "--remote=false", "-s") == "client version: 1.0.0\n"
    assert run("version", "--remote=false", "--short=false") == "client version: 1.0.0-abc-Clean\n"

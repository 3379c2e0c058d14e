"""pilotctl dashboard and remote-clusters, with replicas in a cluster."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator
from importlib import import_module

import pytest

from pilot.cli.http_request import send
from tests.unit.cli.ctl.test_connection import Fleet

dashboard = import_module("pilot.cli.ctl.commands.dashboard")


@pytest.fixture
async def fleet(tmp_path: pathlib.Path) -> AsyncIterator[Fleet]:
    fleet = Fleet(tmp_path)
    await fleet.start()
    yield fleet
    await fleet.stop()


async def test_each_replica_has_an_address(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    pages: list[str] = []
    monkeypatch.setattr(dashboard.webbrowser, "open", opened.append)

    def wait() -> None:
        origin = opened[0].removesuffix("/debug/dashboard")
        pages.append(send(f"{origin}/debug/syncz").text)

    monkeypatch.setattr(dashboard, "wait", wait)
    result = await fleet.run("dashboard", "-c", fleet.kubeconfig)
    assert result.exception is None, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    assert [name for _, name in lines] == [f"istiod-{letter}.istio-system" for letter in "abc"]
    assert opened == [lines[0][0]]
    assert [proxy["proxy"] for proxy in json.loads(pages[0])] == ["tea-1.shop"]


async def test_a_component_without_pods_is_named(fleet: Fleet) -> None:
    result = await fleet.run("dashboard", "grafana", "-c", fleet.kubeconfig)
    assert "no running Pod in the namespace istio-system has the labels app.kubernetes.io/name=grafana" in str(
        result.exception
    )


async def test_clusters_are_listed_for_each_replica(fleet: Fleet) -> None:
    result = await fleet.run("remote-clusters", "-c", fleet.kubeconfig)
    rows = [line.split() for line in result.stdout.splitlines()]
    assert rows[0] == ["NAME", "SECRET", "STATUS", "ISTIOD"]
    assert rows[1:] == [["east", "-", "synced", f"istiod-{letter}.istio-system"] for letter in "abc"]

"""pilotctl dashboard and remote-clusters, with replicas in a cluster."""

from __future__ import annotations

import json
import pathlib
from collections.abc import AsyncIterator
from importlib import import_module

import pytest

from pilot.cli.http_request import send
from tests.unit.cli.ctl.test_connection import Fleet, pod

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


@pytest.fixture
def shop(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Fleet:
    """Return the fleet with the Deployment books, two of whose Pods are running."""
    monkeypatch.setattr(dashboard, "wait", lambda: None)
    labels = {"app": "books"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "books", "namespace": "shop"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": {}}},
    }
    fleet.server.put(deployment)
    for name, phase in (("books-1", "Pending"), ("books-2", "Running"), ("books-3", "Running")):
        plain = pod(name, "shop", phase=phase)
        fleet.server.put({**plain, "metadata": {**plain["metadata"], "labels": labels}})
    return fleet


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("envoy", "books-2.shop"), ["books-2.shop"]),
        (("proxy", "books-3", "-n", "shop"), ["books-3.shop"]),
        (("envoy", "deployment/books.shop"), ["books-2.shop"]),
        (("envoy", "-l", "app=books", "-n", "shop"), ["books-2.shop", "books-3.shop"]),
        (("controlz", "istiod-b.istio-system"), ["istiod-b.istio-system"]),
        (("controlz", "istiod-b"), ["istiod-b.istio-system"]),
        (("grafana", "-n", "shop", "-l", "app=books"), ["books-2.shop", "books-3.shop"]),
    ],
)
async def test_pods_are_selected_by_name_workload_or_labels(
    shop: Fleet, words: tuple[str, ...], expected: list[str]
) -> None:
    result = await shop.run("dashboard", *words, "--browser=false", "-c", shop.kubeconfig)
    assert result.exception is None, result.output
    assert [line.split()[1] for line in result.stdout.splitlines()] == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("envoy", "nosuch.shop"), "there is no pod shop/nosuch"),
        (("envoy", "books-2"), "there is no pod default/books-2"),
        (("envoy", "deployment/cups.shop"), "there is no deployment shop/cups"),
        (("envoy",), "specify POD.NAMESPACE or --selector"),
        (("envoy", "books-2.shop", "-l", "app=books"), "NAME and --selector are mutually exclusive"),
        (("envoy", "-l", "app=cups", "-n", "shop"), "no running Pod in the namespace shop has the labels app=cups"),
    ],
)
async def test_pods_that_do_not_exist_are_refused(shop: Fleet, words: tuple[str, ...], message: str) -> None:
    result = await shop.run("dashboard", *words, "--no-browser", "-c", shop.kubeconfig)
    assert message in str(result.exception)

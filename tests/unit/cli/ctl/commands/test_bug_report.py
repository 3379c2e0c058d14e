"""Logs in the archive of `bug-report`, and the timeout of the API server that they are read from."""

from __future__ import annotations

import asyncio
import pathlib
import re
import socket
import tarfile
from collections.abc import AsyncIterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pilot.cli.ctl.client import PageClient
from pilot.cli.pilotctl import pilotctl
from testing.apiserver.server import ApiServer
from testing.kube.kube_access import write_kubeconfig

# pragma: allowlist nextline secret
KEY = "-----BEGIN PRIVATE KEY-----\nMIIB\n-----END PRIVATE KEY-----\n"


def pod(name: str, namespace: str, labels: dict[str, str], *containers: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": container, "image": "i"} for container in containers]},
    }


class Report:
    """Runs bug-report with an API server."""

    def __init__(self, server: ApiServer, folder: pathlib.Path) -> None:
        self.server, self._archive = server, folder / "report.tar.gz"
        self.kubeconfig = write_kubeconfig(server, folder / "kubeconfig")

    async def __call__(self, *words: str, before: tuple[str, ...] = ()) -> Result:
        words = (
            *before,
            "bug-report",
            "--address",
            ":15014",
            "-o",
            str(self._archive),
            "--kubeconfig",
            str(self.kubeconfig),
            *words,
        )
        return await asyncio.to_thread(CliRunner().invoke, pilotctl, list(words))

    def files(self) -> dict[str, str]:
        """Return the archive's files by name."""
        with tarfile.open(self._archive) as archive:
            contents = {member.name: archive.extractfile(member) for member in archive}
            return {name.removeprefix("bug-report/"): file.read().decode() for name, file in contents.items() if file}


@pytest.fixture
async def report(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Report]:
    pages = {"list": [], "syncz": [{"proxy": "web-0.shop"}, {"proxy": "ztunnel-1.istio-system"}]}
    monkeypatch.setattr(PageClient, "get", lambda _, page, **__: pages[page])
    monkeypatch.setattr(PageClient, "text", lambda *_, **__: "{}")
    server = ApiServer()
    await server.start()
    server.put(pod("istiod-1", "istio-system", {"app": "istiod"}, "discovery"))
    server.put(pod("ztunnel-1", "istio-system", {"app": "ztunnel"}, "istio-proxy"))
    server.put(pod("web-0", "shop", {"app": "web"}, "web", "istio-proxy"))
    server.logs = {
        ("istio-system", "istiod-1", "discovery"): "one\ntwo\nthree\n",
        ("istio-system", "ztunnel-1", "istio-proxy"): "z\n",
        ("shop", "web-0", "istio-proxy"): KEY,
    }
    yield Report(server, tmp_path)
    await server.stop()


async def test_logs_of_components_and_proxies_are_included(report: Report) -> None:
    """Release note bug-report-improvements."""
    result = await report()
    assert result.exit_code == 0, result.output
    logs = {name: text for name, text in report.files().items() if name.startswith("logs")}
    assert logs.keys() == {
        "logs/istio-system/istiod-1/discovery.log",
        "logs/istio-system/ztunnel-1/istio-proxy.log",
        "logs/shop/web-0/istio-proxy.log",
    }
    assert logs["logs/istio-system/istiod-1/discovery.log"] == "one\ntwo\nthree\n"
    assert "MIIB" not in logs["logs/shop/web-0/istio-proxy.log"]


async def test_only_the_tail_of_logs_is_included(report: Report) -> None:
    """Release note bug-report-improvements."""
    await report("--tail", "1", "--skip-proxy-debug")
    files = report.files()
    assert files["logs/istio-system/istiod-1/discovery.log"] == "three\n"
    assert not [name for name in files if name.startswith("proxies/")]
    await report("--skip-logs")
    assert not [name for name in report.files() if name.startswith("logs")]


async def test_missing_logs_are_recorded(report: Report) -> None:
    await report.server.stop()
    result = await report(before=("--kubeclient-timeout", "100ms"))
    assert result.exit_code == 0
    assert "missing: logs.txt: " in result.stderr
    assert "notThere" in report.files()["logs.txt"]


async def test_api_server_that_does_not_respond_is_recorded(report: Report) -> None:
    """Release note 54962."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = re.sub(
            r"server: .*", f"server: http://127.0.0.1:{silent.getsockname()[1]}", report.kubeconfig.read_text()
        )
        report.kubeconfig.write_text(config)
        result = await report(before=("--kubeclient-timeout", "200ms"))
    assert result.exit_code == 0
    assert "missing: logs.txt: /api/v1: no response in time" in result.stderr


@pytest.mark.parametrize("text", ["soon", "0s", "-1s"])
async def test_invalid_timeout_is_a_usage_error(report: Report, text: str) -> None:
    """Release note 54962."""
    result = await report(before=("--kubeclient-timeout", text))
    assert (result.exit_code, "--kubeclient-timeout" in result.stderr) == (2, True)

"""Lifecycle of an agent in this process: sockets, ports, files and the end with its Envoy. A script replaces Envoy."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import http.client
import json
import logging
import pathlib
import signal
import socket
import stat
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from pilot.agent import agent as run
from pilot.agent.agent import Agent, _headers, _log_bug
from pilot.agent.agent_settings import AgentSettings
from pilot.agent.proxy.proxy_context import read_proxy_context
from pilot.agent.unix_sockets import is_listening
from pilot.settings.parse import load_sections
from testing.processes.process import free_port

pytestmark = pytest.mark.slow

XDS, SDS = "etc/istio/proxy/XDS", "var/run/secrets/workload-spiffe-uds/socket"
LIVES = "echo \"$@\" >arguments; trap 'exit 0' TERM; while :; do sleep 0.02; done"
STATS = b"server.state: 0\nlistener_manager.workers_started: 1\ncluster_manager.cds.update_success: 1\nlistener_manager.lds.update_success: 1\n"


class AdminPort:
    """Envoy's admin port. It records requests and serves the statistics of a ready Envoy."""

    def __init__(self) -> None:
        self.requests: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = (await reader.readuntil(b"\r\n\r\n")).decode().split()
        self.requests.append(f"{words[0]} {words[1].partition('?usedonly')[0]}")
        body = b"envoy_up 1\n" if words[1] == "/stats/prometheus" else STATS
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()


@dataclasses.dataclass
class Proxy:
    """A running agent."""

    folder: pathlib.Path
    port: int
    dns_port: int
    admin: AdminPort
    finished: asyncio.Task[int]

    async def request(self, path: str, method: str = "GET") -> tuple[int, str]:
        def ask() -> tuple[int, str]:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
            try:
                connection.request(method, path)
                response = connection.getresponse()
                return response.status, response.read().decode()
            finally:
                connection.close()

        return await asyncio.to_thread(ask)

    async def until(self, path: str) -> None:
        async with asyncio.timeout(30):
            while not (self.folder / path).exists() or not (self.folder / path).read_bytes():
                assert not self.finished.done(), self.finished
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path, script: str, kind: str = "sidecar", config: Mapping[str, str] = {}, **environ: str
) -> AsyncIterator[Proxy]:
    admin, ports = AdminPort(), {name: free_port() for name in ("status", "names")}
    server = await asyncio.start_server(admin.serve, "127.0.0.1", 0)
    envoy = folder / "envoy"
    envoy.write_text(f"#!/bin/sh\n{script}\n")
    envoy.chmod(0o755)
    proxy_config = {
        "binaryPath": str(envoy),
        "statusPort": ports["status"],
        "proxyAdminPort": server.sockets[0].getsockname()[1],
        "terminationDrainDuration": "0s",
        "drainDuration": "7s",
        "discoveryAddress": "127.0.0.1:15012",
        **config,
    }
    variables = {
        "INSTANCE_IP": "127.0.0.1",
        "POD_NAME": "web-1",
        "POD_NAMESPACE": "shop",
        "PROXY_CONFIG": json.dumps(proxy_config),
        "DNS_PROXY_ADDR": f"127.0.0.1:{ports['names']}",
        **environ,
    }
    settings = load_sections(AgentSettings(), ["--concurrency", "1"], variables).settings
    agent = Agent(read_proxy_context(kind, settings, variables), settings, variables)

    async def live() -> int:
        async with contextlib.AsyncExitStack() as stack:
            return await agent.run(stack)

    proxy = Proxy(folder, ports["status"], ports["names"], admin, asyncio.create_task(live()))
    try:
        yield proxy
    finally:
        agent._shutdown.set()
        await asyncio.wait((proxy.finished,))
        server.close()


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log_lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pilot"]


async def test_agent_serves_envoy_from_start_to_end(folder: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
        assert (folder / "arguments").read_text().split()[:4] == [
            "-c",
            "./etc/istio/proxy/envoy-rev.json",
            "--drain-time-s",
            "7",
        ]
        bootstrap = json.loads((folder / "etc/istio/proxy/envoy-rev.json").read_text())
        assert bootstrap["node"]["id"] == "sidecar~127.0.0.1~web-1.shop~shop.svc.cluster.local"
        assert is_listening(XDS)
        assert is_listening(SDS)
        assert stat.S_IMODE((folder / SDS).stat().st_mode) == 0o600  # private to the agent's user
        assert stat.S_IMODE((folder / XDS).stat().st_mode) != 0o600  # open to the user that runs Envoy
        assert await proxy.request("/healthz/ready") == (200, "")
        status, metrics = await proxy.request("/stats/prometheus")
        assert status == 200
        assert metrics.endswith("\nenvoy_up 1\n")
        assert await proxy.request("/drain", "POST") == (200, "OK\n")
        assert await proxy.request("/quitquitquit", "POST") == (200, "OK\n")
        assert await asyncio.wait_for(proxy.finished, 30) == 0
    drain = "POST /drain_listeners?inboundonly&graceful&skip_exit"
    assert proxy.admin.requests == ["GET /stats", "GET /stats/prometheus", drain, drain]
    assert log_lines(caplog) == [("INFO", "Envoy has stopped")]
    assert not is_listening(XDS)
    assert not is_listening(SDS)
    assert not (folder / "etc/istio/proxy/grpc-bootstrap.json").exists()
    with pytest.raises(ConnectionRefusedError):
        await proxy.request("/healthz/ready")


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("exit 0", 1), ("kill -9 $$", 1)])
async def test_unexpected_envoy_exit_fails_the_agent(
    folder: pathlib.Path, script: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(folder, script) as proxy:
        assert await asyncio.wait_for(proxy.finished, 30) == status
    number = {"exit 3": 3, "exit 0": 0}.get(script, -9)
    assert log_lines(caplog) == [("ERROR", f"Envoy exited unexpectedly with status {number}")]
    assert proxy.admin.requests == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_agent(
    folder: pathlib.Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    original_handler = signal.getsignal(number)
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
        assert signal.getsignal(number) is not original_handler
        signal.raise_signal(number)
        assert await asyncio.wait_for(proxy.finished, 30) == 0
    assert proxy.admin.requests == ["POST /drain_listeners?inboundonly&graceful&skip_exit"]
    assert log_lines(caplog) == [("INFO", "Envoy has stopped")]


async def test_second_signal_skips_draining(folder: pathlib.Path) -> None:
    drain = {"terminationDrainDuration": "3600s"}
    async with running(folder, LIVES, config=drain) as proxy:
        await proxy.until("arguments")
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while not proxy.admin.requests:
                await asyncio.sleep(0.01)
        assert await proxy.request("/healthz/ready") == (503, "the proxy is draining\n")
        finished_tasks, _ = await asyncio.wait((proxy.finished,), timeout=0.5)
        assert not finished_tasks
        signal.raise_signal(signal.SIGTERM)
        assert await asyncio.wait_for(proxy.finished, 30) == 0


async def test_periodic_jobs_run_from_the_start(folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = list[str]()

    async def purge(*_: Any) -> None:
        jobs.append("purge")
        await asyncio.Event().wait()

    monkeypatch.setattr(run, "purge_forever", purge)
    monkeypatch.setattr(run, "RELEASE_SECONDS", (0.0, 3600.0))
    monkeypatch.setattr(run, "release_memory", lambda: jobs.append("release"))
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
    assert sorted(jobs) == ["purge", "release"]


async def test_agent_without_envoy_serves_until_quit(folder: pathlib.Path) -> None:
    async with running(
        folder, "touch arguments", DISABLE_ENVOY="true", ISTIO_META_GENERATOR="grpc", ISTIO_META_DNS_CAPTURE="true"
    ) as proxy:
        await proxy.until("etc/istio/proxy/grpc-bootstrap.json")
        assert (
            json.loads((folder / "etc/istio/proxy/grpc-bootstrap.json").read_text())["node"]["metadata"]["GENERATOR"]
            == "grpc"
        )
        assert await proxy.request("/healthz/ready") == (200, "")
        assert "envoy_up" not in (await proxy.request("/stats/prometheus"))[1]
        async with asyncio.timeout(30):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.dns_port)
        writer.close()
        assert is_listening(XDS)
        await proxy.request("/quitquitquit", "POST")
        assert await asyncio.wait_for(proxy.finished, 30) == 0
    assert not (folder / "etc/istio/proxy/envoy-rev.json").exists()
    assert not (folder / "arguments").exists()
    assert proxy.admin.requests == []
    with socket.socket() as free, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", proxy.dns_port))
        udp.bind(("127.0.0.1", proxy.dns_port))


@pytest.mark.parametrize(
    ("kind", "environ", "serves_dns"),
    [
        ("sidecar", {}, False),
        ("sidecar", {"ISTIO_META_DNS_CAPTURE": "true"}, True),
        ("sidecar", {"ISTIO_META_ENABLE_DNS_SERVER": "true"}, False),
        ("router", {"ISTIO_META_ENABLE_DNS_SERVER": "true"}, True),
    ],
)
async def test_dns_server_follows_the_settings(
    folder: pathlib.Path, kind: str, environ: Mapping[str, str], serves_dns: bool
) -> None:
    async with running(folder, LIVES, kind, **environ) as proxy:
        await proxy.until("arguments")
        with socket.socket() as client:
            assert (client.connect_ex(("127.0.0.1", proxy.dns_port)) == 0) is serves_dns


@pytest.mark.parametrize(("kind", "is_merged"), [("sidecar", True), ("router", False)])
async def test_only_sidecars_merge_application_metrics(folder: pathlib.Path, kind: str, is_merged: bool) -> None:
    application = AdminPort()
    server = await asyncio.start_server(application.serve, "127.0.0.1", 0)
    annotations = json.dumps({"port": str(server.sockets[0].getsockname()[1]), "path": "/mine"})
    async with running(folder, LIVES, kind, ISTIO_PROMETHEUS_ANNOTATIONS=annotations) as proxy:
        await proxy.until("arguments")
        await proxy.request("/stats/prometheus")
    server.close()
    assert application.requests == (["GET /mine"] if is_merged else [])


@pytest.mark.parametrize(("variable", "is_merged"), [("", True), ("true", True), ("false", False)])
async def test_variable_disables_merging_of_envoys_metrics(
    folder: pathlib.Path, variable: str, is_merged: bool
) -> None:
    """Release note agent-merge-envoy-stats-flag."""
    async with running(folder, LIVES, PILOT_AGENT_MERGE_ENVOY_STATS=variable) as proxy:
        await proxy.until("arguments")
        status, page = await proxy.request("/stats/prometheus")
    assert (status, "envoy_up 1\n" in page, "istio_agent_" in page) == (200, is_merged, True)
    assert ("GET /stats/prometheus" in proxy.admin.requests) is is_merged


def test_headers_come_from_prefixed_variables() -> None:
    assert _headers(
        {"XDS_HEADER_A": "1", "CA_HEADER_A": "2", "OTHER": "3", "XDS_HEADER_B_XDS_HEADER_": "4"}, "XDS_HEADER_"
    ) == {
        "A": "1",
        "B_XDS_HEADER_": "4",
    }


async def test_background_failure_is_logged_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def finish(error: BaseException | None) -> None:
        if error is not None:
            raise error

    tasks: list[Any] = [
        asyncio.ensure_future(finish(error)) for error in (None, asyncio.CancelledError(), ValueError("odd"))
    ]
    await asyncio.wait(tasks)
    for task in tasks:
        _log_bug(task)
    assert log_lines(caplog) == [("ERROR", "a background task of the agent failed")]
    assert str((caplog.records[0].exc_info or (None, None))[1]) == "odd"

"""One agent from its start to its end, in this process: what it serves and writes, how it ends with its Envoy. A script stands in for Envoy."""

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


class AdminClient:
    """Envoy's admin port: every request is kept; statistics are those of an Envoy that is ready."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        words = (await reader.readuntil(b"\r\n\r\n")).decode().split()
        self.asked.append(f"{words[0]} {words[1].partition('?usedonly')[0]}")
        body = b"envoy_up 1\n" if words[1] == "/stats/prometheus" else STATS
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
        writer.close()


@dataclasses.dataclass
class Proxy:
    """An agent that runs, and what a test asks of it."""

    folder: pathlib.Path
    port: int
    names: int
    admin: AdminClient
    ended: asyncio.Task[int]

    async def ask(self, path: str, method: str = "GET") -> tuple[int, str]:
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
                assert not self.ended.done(), self.ended
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(
    folder: pathlib.Path, script: str, kind: str = "sidecar", config: Mapping[str, str] = {}, **environ: str
) -> AsyncIterator[Proxy]:
    admin, ports = AdminClient(), {name: free_port() for name in ("status", "names")}
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
    given = {
        "INSTANCE_IP": "127.0.0.1",
        "POD_NAME": "web-1",
        "POD_NAMESPACE": "shop",
        "PROXY_CONFIG": json.dumps(proxy_config),
        "DNS_PROXY_ADDR": f"127.0.0.1:{ports['names']}",
        **environ,
    }
    settings = load_sections(AgentSettings(), ["--concurrency", "1"], given).settings
    agent = Agent(read_proxy_context(kind, settings, given), settings, given)

    async def live() -> int:
        async with contextlib.AsyncExitStack() as stack:
            return await agent.run(stack)

    proxy = Proxy(folder, ports["status"], ports["names"], admin, asyncio.create_task(live()))
    try:
        yield proxy
    finally:
        agent._shutdown.set()
        await asyncio.wait((proxy.ended,))
        server.close()


@pytest.fixture
def folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "pilot"]


async def test_an_agent_serves_its_envoy_from_its_start_to_its_end(
    folder: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
        assert (folder / "arguments").read_text().split()[:4] == [
            "-c",
            "./etc/istio/proxy/envoy-rev.json",
            "--drain-time-s",
            "7",
        ]
        written = json.loads((folder / "etc/istio/proxy/envoy-rev.json").read_text())
        assert written["node"]["id"] == "sidecar~127.0.0.1~web-1.shop~shop.svc.cluster.local"
        assert is_listening(XDS)
        assert is_listening(SDS)
        assert stat.S_IMODE((folder / SDS).stat().st_mode) == 0o600  # keys are for the agent's own user alone
        assert stat.S_IMODE((folder / XDS).stat().st_mode) != 0o600  # configuration is for whomever Envoy runs as
        assert await proxy.ask("/healthz/ready") == (200, "")
        status, metrics = await proxy.ask("/stats/prometheus")
        assert status == 200
        assert metrics.endswith("\nenvoy_up 1\n")
        assert await proxy.ask("/drain", "POST") == (200, "OK\n")
        assert await proxy.ask("/quitquitquit", "POST") == (200, "OK\n")
        assert await asyncio.wait_for(proxy.ended, 30) == 0
    drain = "POST /drain_listeners?inboundonly&graceful&skip_exit"
    assert proxy.admin.asked == ["GET /stats", "GET /stats/prometheus", drain, drain]
    assert said(caplog) == [("INFO", "Envoy has stopped")]
    assert not is_listening(XDS)
    assert not is_listening(SDS)
    assert not (folder / "etc/istio/proxy/grpc-bootstrap.json").exists()
    with pytest.raises(ConnectionRefusedError):
        await proxy.ask("/healthz/ready")


@pytest.mark.parametrize(("script", "status"), [("exit 3", 3), ("exit 0", 1), ("kill -9 $$", 1)])
async def test_an_envoy_that_ends_by_itself_ends_the_agent_with_a_status_that_is_not_0(
    folder: pathlib.Path, script: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(folder, script) as proxy:
        assert await asyncio.wait_for(proxy.ended, 30) == status
    number = {"exit 3": 3, "exit 0": 0}.get(script, -9)
    assert said(caplog) == [("ERROR", f"Envoy exited unexpectedly with status {number}")]
    assert proxy.admin.asked == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_an_agent_as_its_command_does(
    folder: pathlib.Path, number: signal.Signals, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    unheard = signal.getsignal(number)
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
        assert signal.getsignal(number) is not unheard
        signal.raise_signal(number)
        assert await asyncio.wait_for(proxy.ended, 30) == 0
    assert proxy.admin.asked == ["POST /drain_listeners?inboundonly&graceful&skip_exit"]
    assert said(caplog) == [("INFO", "Envoy has stopped")]


async def test_a_second_signal_ends_an_agent_before_it_has_drained(folder: pathlib.Path) -> None:
    drain = {"terminationDrainDuration": "3600s"}
    async with running(folder, LIVES, config=drain) as proxy:
        await proxy.until("arguments")
        signal.raise_signal(signal.SIGTERM)
        async with asyncio.timeout(30):
            while not proxy.admin.asked:
                await asyncio.sleep(0.01)
        assert await proxy.ask("/healthz/ready") == (503, "the proxy is draining\n")
        ended, _ = await asyncio.wait((proxy.ended,), timeout=0.5)
        assert not ended
        signal.raise_signal(signal.SIGTERM)
        assert await asyncio.wait_for(proxy.ended, 30) == 0


async def test_what_is_to_be_done_now_and_then_is_done_from_the_start(
    folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = list[str]()

    async def purge(*_: Any) -> None:
        begun.append("purge")
        await asyncio.Event().wait()

    monkeypatch.setattr(run, "purge_forever", purge)
    monkeypatch.setattr(run, "RELEASE_SECONDS", (0.0, 3600.0))
    monkeypatch.setattr(run, "release_memory", lambda: begun.append("release"))
    async with running(folder, LIVES) as proxy:
        await proxy.until("arguments")
    assert sorted(begun) == ["purge", "release"]


async def test_an_agent_without_envoy_serves_until_it_is_told_to_end(folder: pathlib.Path) -> None:
    async with running(
        folder, "touch arguments", DISABLE_ENVOY="true", ISTIO_META_GENERATOR="grpc", ISTIO_META_DNS_CAPTURE="true"
    ) as proxy:
        await proxy.until("etc/istio/proxy/grpc-bootstrap.json")
        assert (
            json.loads((folder / "etc/istio/proxy/grpc-bootstrap.json").read_text())["node"]["metadata"]["GENERATOR"]
            == "grpc"
        )
        assert await proxy.ask("/healthz/ready") == (200, "")
        assert "envoy_up" not in (await proxy.ask("/stats/prometheus"))[1]
        async with asyncio.timeout(30):
            _, writer = await asyncio.open_connection("127.0.0.1", proxy.names)
        writer.close()
        assert is_listening(XDS)
        await proxy.ask("/quitquitquit", "POST")
        assert await asyncio.wait_for(proxy.ended, 30) == 0
    assert not (folder / "etc/istio/proxy/envoy-rev.json").exists()
    assert not (folder / "arguments").exists()
    assert proxy.admin.asked == []
    with socket.socket() as free, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        free.bind(("127.0.0.1", proxy.names))
        udp.bind(("127.0.0.1", proxy.names))


@pytest.mark.parametrize(
    ("kind", "environ", "answers"),
    [
        ("sidecar", {}, False),
        ("sidecar", {"ISTIO_META_DNS_CAPTURE": "true"}, True),
        ("sidecar", {"ISTIO_META_ENABLE_DNS_SERVER": "true"}, False),
        ("router", {"ISTIO_META_ENABLE_DNS_SERVER": "true"}, True),
    ],
)
async def test_names_are_answered_where_that_is_asked_for(
    folder: pathlib.Path, kind: str, environ: Mapping[str, str], answers: bool
) -> None:
    async with running(folder, LIVES, kind, **environ) as proxy:
        await proxy.until("arguments")
        with socket.socket() as client:
            assert (client.connect_ex(("127.0.0.1", proxy.names)) == 0) is answers


@pytest.mark.parametrize(("kind", "shown"), [("sidecar", True), ("router", False)])
async def test_an_applications_metrics_are_on_the_page_of_a_sidecar_alone(
    folder: pathlib.Path, kind: str, shown: bool
) -> None:
    application = AdminClient()
    server = await asyncio.start_server(application.serve, "127.0.0.1", 0)
    where = json.dumps({"port": str(server.sockets[0].getsockname()[1]), "path": "/mine"})
    async with running(folder, LIVES, kind, ISTIO_PROMETHEUS_ANNOTATIONS=where) as proxy:
        await proxy.until("arguments")
        await proxy.ask("/stats/prometheus")
    server.close()
    assert application.asked == (["GET /mine"] if shown else [])


def test_headers_are_those_of_variables_with_a_prefix() -> None:
    assert _headers(
        {"XDS_HEADER_A": "1", "CA_HEADER_A": "2", "OTHER": "3", "XDS_HEADER_B_XDS_HEADER_": "4"}, "XDS_HEADER_"
    ) == {
        "A": "1",
        "B_XDS_HEADER_": "4",
    }


async def test_a_part_that_ends_by_a_mistake_of_ours_is_told_with_its_trace(caplog: pytest.LogCaptureFixture) -> None:
    async def ends(error: BaseException | None) -> None:
        if error is not None:
            raise error

    tasks: list[Any] = [
        asyncio.ensure_future(ends(error)) for error in (None, asyncio.CancelledError(), ValueError("odd"))
    ]
    await asyncio.wait(tasks)
    for task in tasks:
        _log_bug(task)
    assert said(caplog) == [("ERROR", "a background task of the agent failed")]
    assert str((caplog.records[0].exc_info or (None, None))[1]) == "odd"

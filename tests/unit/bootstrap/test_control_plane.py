"""A whole control plane in this process, with a virtual clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import NamedTuple

import aiohttp
import grpc
import pytest
from grpc import aio

from pilot.bootstrap import ControlPlane, StartError, ports
from pilot.bootstrap.control_plane import SWEEP_SECONDS
from pilot.bootstrap.first_load import PausedClock
from pilot.bootstrap.security import secure_port
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.derive import Database, derived
from pilot.settings.parse import load
from pilot.xds import server as xds_server
from pilot.xds.push.connection import Connection
from testing.clients.ads import Client
from testing.mesh.clock import VirtualClock

SERVICE = """
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: one, namespace: shop}
spec: {hosts: [one.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: NONE}
"""


ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


class Running(NamedTuple):
    plane: ControlPlane
    clock: VirtualClock
    task: asyncio.Task[None]

    @property
    def port(self) -> int:
        """Port of the xDS listener, as `Client` expects it."""
        return self.plane.ports["xDS"].number

    async def get(self, path: str, port: str = "HTTP") -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.plane.ports[port].number}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def metric(self, line: str) -> bool:
        """Wait until the metrics contain a line, because requests that arrive together share an exposition."""
        async with asyncio.timeout(30):
            while line not in (await self.get("/metrics", "monitoring"))[1].splitlines():
                await asyncio.sleep(0.01)
        return True


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, environ: Mapping[str, str] = {}, **flags: str) -> AsyncIterator[Running]:
    options = {"configDir": str(folder), "ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
    clock = VirtualClock()
    plane = ControlPlane(load([f"--{name}={value}" for name, value in options.items()], environ).settings, clock)
    task = asyncio.create_task(plane.run())
    try:
        await until(lambda: plane.ready or task.done())
        yield Running(plane, clock, task)
    finally:
        plane.end()
        async with asyncio.timeout(30):
            await task


async def test_first_load_commits_at_once_and_later_changes_are_debounced(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "one.yaml").write_text(SERVICE)
    async with running(tmp_path) as process:
        db = process.plane.db
        assert len(SERVICE_ENTRY.table(db)) == 1, "the first commit does not wait for the debounce"
        idle = process.clock.waiting
        (tmp_path / "two.yaml").write_text(SERVICE.replace("one", "two"))
        await until(lambda: process.clock.waiting > idle)
        assert len(SERVICE_ENTRY.table(db)) == 1
        process.clock.advance(0.2)
        assert len(SERVICE_ENTRY.table(db)) == 2
        assert await process.metric("pilot_services 2")
        assert await process.metric("pilot_debounce_time_count 2")
        assert await process.metric('pilot_inbound_updates{type="config"} 2')


def test_paused_clock_runs_no_timer_before_resume() -> None:
    clock, calls = VirtualClock(), []
    paused = PausedClock(clock)
    paused.call_later(1.0, lambda: calls.append("early")).cancel()
    paused.call_later(1.0, lambda: calls.append("early"))
    assert clock.waiting == 0
    assert paused.time() == clock.time()
    paused.resume()
    paused.call_later(1.0, lambda: calls.append("late"))
    clock.advance(2.0)
    assert calls == ["late"]


async def test_failed_derivation_is_counted_and_logged(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    @derived
    def broken(db: Database, key: str) -> int:
        raise ZeroDivisionError(key)

    async with running(tmp_path) as process:
        with caplog.at_level(logging.ERROR, "pilot"):
            process.plane.db.watch(broken, "why")
        name = str(process.plane.db.watch(broken, "why").fn)
        assert await process.metric(f'pilot_derivation_failures{{derivation="{name}"}} 1')
    assert "cannot derive" in caplog.text
    assert "ZeroDivisionError: why" in caplog.text


async def test_invalid_object_is_logged_counted_and_listed(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.yaml").write_text(SERVICE.replace("number: 80", "number: 99999"))
    with caplog.at_level(logging.WARNING, "pilot"):
        async with running(tmp_path) as process:
            assert await process.metric('pilot_total_rejected_configs{name="shop/one",type="serviceentry"} 1')
            assert "bad.yaml" in (await process.get("/debug/problemz"))[1]
    assert "bad.yaml" in caplog.text


async def test_sweep_removes_disconnected_proxies(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as process:
        monkeypatch.setattr(process.plane.discovery, "_linger", 0.0)
        async with Client(process) as client:
            await client.request("cds")
            await client.receive()
            assert len(process.plane.db.proxies) == 1
            process.clock.advance(SWEEP_SECONDS)
            assert len(process.plane.db.proxies) == 1, "connected proxies stay"
        await until(lambda: not process.plane.discovery.connections())
        process.clock.advance(SWEEP_SECONDS * 0.9)
        assert len(process.plane.db.proxies) == 1
        process.clock.advance(SWEEP_SECONDS)
        assert len(process.plane.db.proxies) == 0


async def test_draining_is_not_ready_and_waits_for_busy_proxies(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one.yaml").write_text(SERVICE)
    async with running(tmp_path, shutdownDuration="1h") as process:
        assert (await process.get("/ready"))[0] == 200
        async with Client(process) as client:
            await client.request("cds")
            await client.receive()
            (connection,) = process.plane.discovery.connections()
            await until(lambda: connection.is_idle)
            connection.busy = True
            process.plane.end()
            await until(lambda: not process.plane.ready)
            assert (await process.get("/ready"))[0] == 503
            assert (await process.get("/debug/adsz"))[0] == 200, "debug pages stay available while draining"
            assert not client.call.done()
            connection.busy = False
            assert (await client.end_status())[0] is grpc.StatusCode.OK
        async with asyncio.timeout(30):
            await process.task
        with pytest.raises(aiohttp.ClientConnectionError):
            await process.get("/ready")


async def test_failed_start_leaves_no_port_open(tmp_path: pathlib.Path) -> None:
    flags = [f"--configDir={tmp_path / 'missing'}", "--ctrlz_port=0", *(f"--{name}=127.0.0.1:0" for name in ADDRESSES)]
    plane = ControlPlane(load(flags, {}).settings)
    with pytest.raises(StartError, match="--configDir"):
        await plane.run()
    assert plane.ports["HTTP"].number > 0, "the HTTP port opens first"
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", plane.ports["HTTP"].number)


async def test_early_end_leaves_no_port_open(tmp_path: pathlib.Path) -> None:
    plane = ControlPlane(
        load(
            [f"--configDir={tmp_path}", "--ctrlz_port=0", *(f"--{name}=127.0.0.1:0" for name in ADDRESSES)], {}
        ).settings
    )
    plane.end()
    async with asyncio.timeout(30):
        await plane.run()
    assert not plane.ready
    assert plane.ports["xDS"].number == 0, "the xDS port never opened"


async def test_problems_between_objects_are_listed_and_counted_after_debounce(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rule.yaml").write_text("""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: lost, namespace: shop}
spec: {host: one.example.com}
""")
    async with running(tmp_path) as process:
        assert list(process.plane.problems) == []
        process.clock.advance(2)
        assert [p.code for p in process.plane.problems] == ["host-not-found"]
        assert await process.metric('pilot_config_problems{code="host-not-found",severity="warning"} 1')
        assert "one.example.com" in (await process.get("/debug/problemz"))[1]
        idle = process.clock.waiting
        (tmp_path / "one.yaml").write_text(SERVICE)
        await until(lambda: process.clock.waiting > idle)
        process.clock.advance(2)
        assert list(process.plane.problems) == []
        assert await process.metric('pilot_config_problems{code="host-not-found",severity="warning"} 0')


async def test_configuration_is_not_read_while_streams_drain(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reader_tasks() -> list[str]:
        return sorted(
            name
            for task in asyncio.all_tasks()
            if (name := task.get_name()).startswith((f"read {tmp_path}", f"watch {tmp_path}"))
        )

    snapshots: list[list[str]] = []

    async def drain(server: aio.Server, connections: Collection[Connection], seconds: float) -> None:
        snapshots.append(reader_tasks())
        await stop_server(server, connections, seconds)

    stop_server = xds_server.drain
    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    async with running(tmp_path):
        assert reader_tasks() == [f"read {tmp_path}", f"watch {tmp_path}"]
    assert snapshots == [[], []], "both ports drain without readers"

"""A whole control plane in this process, on a clock that the test moves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import aiohttp
import grpc
import pytest

from pilot.bootstrap import ControlPlane, StartError, ports
from pilot.bootstrap.control_plane import SWEEP_SECONDS
from pilot.bootstrap.first_load import PausedClock
from pilot.bootstrap.security import secure_port
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.derive import Database, derived
from pilot.settings.parse import load
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
        """Where proxies connect; `Client` asks for it."""
        return self.plane.ports["xDS"].number

    async def get(self, path: str, port: str = "HTTP") -> tuple[int, str]:
        url = f"http://127.0.0.1:{self.plane.ports[port].number}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def metric(self, line: str) -> bool:
        return line in (await self.get("/metrics", "monitoring"))[1].splitlines()


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not check():
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, **flags: str) -> AsyncIterator[Running]:
    given = {"configDir": str(folder), "ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
    clock = VirtualClock()
    plane = ControlPlane(load([f"--{name}={value}" for name, value in given.items()], {}).settings, clock)
    task = asyncio.create_task(plane.run())
    try:
        await until(lambda: plane.ready or task.done())
        yield Running(plane, clock, task)
    finally:
        plane.end()
        async with asyncio.timeout(30):
            await task


async def test_what_is_read_first_is_committed_once_and_later_changes_after_a_quiet_moment(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "one.yaml").write_text(SERVICE)
    async with running(tmp_path) as it:
        db = it.plane.db
        assert len(SERVICE_ENTRY.table(db)) == 1, "committed although the clock has not moved"
        idle = it.clock.waiting
        (tmp_path / "two.yaml").write_text(SERVICE.replace("one", "two"))
        await until(lambda: it.clock.waiting > idle)
        assert len(SERVICE_ENTRY.table(db)) == 1
        it.clock.advance(0.2)
        assert len(SERVICE_ENTRY.table(db)) == 2
        assert await it.metric("pilot_services 2")
        assert await it.metric("pilot_debounce_time_count 2")
        assert await it.metric('pilot_inbound_updates{type="config"} 2')


def test_no_timer_rings_before_the_first_load_is_committed() -> None:
    clock, rung = VirtualClock(), []
    held = PausedClock(clock)
    held.call_later(1.0, lambda: rung.append("early")).cancel()
    held.call_later(1.0, lambda: rung.append("early"))
    assert clock.waiting == 0
    assert held.time() == clock.time()
    held.resume()
    held.call_later(1.0, lambda: rung.append("late"))
    clock.advance(2.0)
    assert rung == ["late"]


async def test_a_derivation_that_fails_is_counted_and_logged(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    @derived
    def broken(db: Database, key: str) -> int:
        raise ZeroDivisionError(key)

    async with running(tmp_path) as it:
        with caplog.at_level(logging.ERROR, "pilot"):
            it.plane.db.watch(broken, "why")
        name = str(it.plane.db.watch(broken, "why").fn)
        assert await it.metric(f'pilot_derivation_failures{{derivation="{name}"}} 1')
    assert "cannot derive" in caplog.text
    assert "ZeroDivisionError: why" in caplog.text


async def test_a_users_mistake_is_logged_counted_and_shown(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "bad.yaml").write_text(SERVICE.replace("number: 80", "number: 99999"))
    with caplog.at_level(logging.WARNING, "pilot"):
        async with running(tmp_path) as it:
            assert await it.metric('pilot_total_rejected_configs{name="shop/one",type="serviceentry"} 1')
            assert "bad.yaml" in (await it.get("/debug/problemz"))[1]
    assert "bad.yaml" in caplog.text


async def test_the_sweep_forgets_proxies_that_are_gone(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path) as it:
        monkeypatch.setattr(it.plane.discovery, "_linger", 0.0)
        async with Client(it) as client:
            await client.ask("cds")
            await client.take()
            assert len(it.plane.db.proxies) == 1
            it.clock.advance(SWEEP_SECONDS)
            assert len(it.plane.db.proxies) == 1, "it is still here"
        await until(lambda: not it.plane.discovery.connections())
        it.clock.advance(SWEEP_SECONDS * 0.9)
        assert len(it.plane.db.proxies) == 1
        it.clock.advance(SWEEP_SECONDS)
        assert len(it.plane.db.proxies) == 0


async def test_not_ready_while_it_drains_and_a_busy_proxy_gets_the_time_to_finish(tmp_path: pathlib.Path) -> None:
    (tmp_path / "one.yaml").write_text(SERVICE)
    async with running(tmp_path, shutdownDuration="1h") as it:
        assert (await it.get("/ready"))[0] == 200
        async with Client(it) as client:
            await client.ask("cds")
            await client.take()
            (connection,) = it.plane.discovery.connections()
            await until(lambda: connection.is_idle)
            connection.busy = True
            it.plane.end()
            await until(lambda: not it.plane.ready)
            assert (await it.get("/ready"))[0] == 503
            assert (await it.get("/debug/adsz"))[0] == 200, "who still is connected can be seen"
            assert not client.call.done()
            connection.busy = False
            assert (await client.ends())[0] is grpc.StatusCode.OK
        async with asyncio.timeout(30):
            await it.task
        with pytest.raises(aiohttp.ClientConnectionError):
            await it.get("/ready")


async def test_a_start_that_fails_leaves_no_port_open(tmp_path: pathlib.Path) -> None:
    flags = [f"--configDir={tmp_path / 'missing'}", "--ctrlz_port=0", *(f"--{name}=127.0.0.1:0" for name in ADDRESSES)]
    plane = ControlPlane(load(flags, {}).settings)
    with pytest.raises(StartError, match="--configDir"):
        await plane.run()
    assert plane.ports["HTTP"].number > 0, "it listened first of all"
    with pytest.raises(OSError, match="onnect"):
        await asyncio.open_connection("127.0.0.1", plane.ports["HTTP"].number)


async def test_an_end_before_everything_has_started_leaves_no_port_open(tmp_path: pathlib.Path) -> None:
    plane = ControlPlane(
        load(
            [f"--configDir={tmp_path}", "--ctrlz_port=0", *(f"--{name}=127.0.0.1:0" for name in ADDRESSES)], {}
        ).settings
    )
    plane.end()
    async with asyncio.timeout(30):
        await plane.run()
    assert not plane.ready
    assert plane.ports["xDS"].number == 0, "it never listened"


async def test_problems_between_objects_are_listed_and_counted_once_it_is_quiet(tmp_path: pathlib.Path) -> None:
    (tmp_path / "rule.yaml").write_text("""
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: lost, namespace: shop}
spec: {host: one.example.com}
""")
    async with running(tmp_path) as it:
        assert list(it.plane.problems) == []
        it.clock.advance(2)
        assert [p.code for p in it.plane.problems] == ["host-not-found"]
        assert await it.metric('pilot_config_problems{code="host-not-found",severity="warning"} 1')
        assert "one.example.com" in (await it.get("/debug/problemz"))[1]
        idle = it.clock.waiting
        (tmp_path / "one.yaml").write_text(SERVICE)
        await until(lambda: it.clock.waiting > idle)
        it.clock.advance(2)
        assert list(it.plane.problems) == []
        assert await it.metric('pilot_config_problems{code="host-not-found",severity="warning"} 0')


async def test_configuration_stands_still_while_streams_drain(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def following() -> list[str]:
        return sorted(
            name
            for task in asyncio.all_tasks()
            if (name := task.get_name()).startswith((f"read {tmp_path}", f"watch {tmp_path}"))
        )

    seen: list[list[str]] = []

    async def drain(*_: object) -> None:
        seen.append(following())

    monkeypatch.setattr(ports, "drain", drain)
    monkeypatch.setattr(secure_port, "drain", drain)
    async with running(tmp_path):
        assert following() == [f"read {tmp_path}", f"watch {tmp_path}"]
    assert seen == [[], []], "each of two ports drains"

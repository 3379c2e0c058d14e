"""ControlZ port of the process, and the stacks it logs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pathlib
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator

import aiohttp
import pytest

from pilot.bootstrap import ControlPlane
from pilot.bootstrap.diagnostics import log_stacks
from pilot.bootstrap.options import controlz_address
from pilot.settings.parse import load
from pilot.settings.process import ProcessSettings
from pilot.xds.net.listen_address import Address
from testing.processes.process import free_port

pytestmark = pytest.mark.slow

PORTS = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


@contextlib.asynccontextmanager
async def running(folder: pathlib.Path, port: int) -> AsyncIterator[tuple[ControlPlane, asyncio.Task[None]]]:
    addresses = [f"--{name}=127.0.0.1:0" for name in PORTS]
    plane = ControlPlane(load([f"--configDir={folder}", f"--ctrlz_port={port}", *addresses], {}).settings)
    task = asyncio.create_task(plane.run())
    try:
        async with asyncio.timeout(30):
            while not plane.ready:
                await asyncio.sleep(0.01)
        yield plane, task
    finally:
        plane.end()
        await task


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("localhost", 9876, Address("127.0.0.1", 9876, "ctrlz_port")),
        ("*", 9876, Address("", 9876, "ctrlz_port")),
        ("::1", 1, Address("::1", 1, "ctrlz_port")),
        ("localhost", 0, None),
    ],
)
def test_controlz_address(host: str, port: int, address: Address | None) -> None:
    assert controlz_address(ProcessSettings(controlz_address=host, controlz_port=port)) == address


async def test_controlz_serves_scopes_and_ends_the_process(tmp_path: pathlib.Path) -> None:
    port = free_port()
    async with running(tmp_path, port) as (_, task), aiohttp.ClientSession() as session:
        async with session.get(f"http://127.0.0.1:{port}/scopej/") as response:
            assert "default" in {scope["name"] for scope in await response.json(content_type="text/plain")}
        async with session.put(f"http://127.0.0.1:{port}/homej/exit") as response:
            assert response.status == 202
        async with asyncio.timeout(30):
            await task


async def test_port_0_disables_controlz(tmp_path: pathlib.Path) -> None:
    async with running(tmp_path, 0) as (plane, _):
        assert "ControlZ" not in plane.ports


async def test_occupied_address_does_not_block_the_control_plane(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        async with running(tmp_path, other.getsockname()[1]):
            pass
    assert any(
        message.startswith("ControlZ is not available: cannot listen on 127.0.0.1:") for message in caplog.messages
    )


async def test_thread_and_task_stacks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")

    async def wait_forever() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(wait_forever(), name="waiting")
    await asyncio.sleep(0)
    log_stacks()
    task.cancel()
    assert any(
        m.startswith("stack of thread MainThread: pilot.pprof.tasks.threads (pprof/tasks.py:") for m in caplog.messages
    )
    assert any(
        m.startswith("stack of task waiting: ") and ".wait_forever (bootstrap/test_controlz_port.py:" in m
        for m in caplog.messages
    )


def test_sigusr1_logs_stacks_and_keeps_running(tmp_path: pathlib.Path) -> None:
    program = pathlib.Path(sys.executable).parent / "pilot-discovery"
    command = [
        program,
        "discovery",
        f"--configDir={tmp_path}",
        "--ctrlz_port=0",
        *(f"--{name}=127.0.0.1:0" for name in PORTS),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        assert any("ready" in line for line in process.stdout)
        process.send_signal(signal.SIGUSR1)
        assert any("stack of thread MainThread: " in line for line in process.stdout)
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0

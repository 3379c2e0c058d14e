"""An in-process control plane that uses the API server of the tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping

import aiohttp

from pilot.bootstrap import ControlPlane
from pilot.settings.parse import load
from testing.clients.ads import Client

ADDRESSES = ("httpAddr", "grpcAddr", "monitoringAddr", "secureGRPCAddr", "httpsAddr")


class Plane:
    """An in-process control plane."""

    def __init__(self, environ: Mapping[str, str], **flags: str) -> None:
        arguments = {"ctrlz_port": "0", **dict.fromkeys(ADDRESSES, "127.0.0.1:0"), **flags}
        defaults = {"PILOT_DEBOUNCE_AFTER": "1ms"}
        self.plane = ControlPlane(
            load([f"--{name}={value}" for name, value in arguments.items()], {**defaults, **environ}).settings
        )
        self.task = asyncio.create_task(self.plane.run())

    @property
    def port(self) -> int:
        return self.plane.ports["xDS"].number

    async def ready_status(self) -> int:
        url = f"http://127.0.0.1:{self.plane.ports['HTTP'].number}/ready"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status

    async def clusters(self) -> set[str]:
        """Return the outbound clusters of ServiceEntries that a new proxy receives."""
        async with Client(self) as client:
            await client.request("cds")
            names = {resource.name for resource in (await client.receive()).resources}
        return {name.rpartition("|")[2].removesuffix(".example.com") for name in names if name.endswith(".example.com")}


@contextlib.asynccontextmanager
async def running(environ: Mapping[str, str] | None = None, **flags: str) -> AsyncIterator[Plane]:
    plane = Plane(environ or {}, **flags)
    try:
        yield plane
    finally:
        plane.plane.end()
        async with asyncio.timeout(30):
            await plane.task

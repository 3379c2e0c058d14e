"""The end of a server that others still talk to."""
from __future__ import annotations

import asyncio

from grpc import aio

from pilot.serve.discovery import Discovery

_LOOK = 0.02
"""Seconds between two looks at who is done."""


async def drain(server: aio.Server, discovery: Discovery, seconds: float) -> None:
    """Take no more streams, let each end when its proxy has what there is for it, and cut the rest off after `seconds`."""
    stopping = asyncio.create_task(server.stop(seconds))
    while not stopping.done():
        for connection in discovery.connections():
            if connection.is_idle:
                discovery.disconnect(connection.id)
        await asyncio.wait((stopping,), timeout=_LOOK)
    await stopping

"""A server that others still talk to is ended here."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from grpc import aio

from pilot.xds.connection import Connection

_LOOK = 0.02
"""Seconds between two looks at who is done."""


async def drain(server: aio.Server, connections: Collection[Connection], seconds: float) -> None:
    """Takes no more streams, lets each end when its proxy has what there is for it, and cuts the rest off after `seconds`.

    `connections` are always those that the server has now.
    """
    stopping = asyncio.create_task(server.stop(seconds))
    while not stopping.done():
        for connection in tuple(connections):
            if connection.is_idle:
                connection.end()
        await asyncio.wait((stopping,), timeout=_LOOK)
    await stopping

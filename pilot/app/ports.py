"""The ports of the process as parts."""
from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from aiohttp import web
from grpc import aio

from pilot.lib.duration import Duration
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.serve.address import Address
from pilot.serve.connection import Connection
from pilot.serve.drain import drain
from pilot.serve.http import listen

_log = scope("default")


class HttpPort:
    """An HTTP application on its address. `number` is that of the port, once it listens: another one where the address says 0."""

    def __init__(self, app: web.Application, address: Address) -> None:
        self._app, self._address = app, address
        self.number = address.port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens. StartError where the address cannot be had."""
        try:
            self._runner = await listen(self._app, self._address)
        except OSError as error:
            raise StartError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        self.number = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class GrpcServices(NamedTuple):
    """What one port of gRPC serves: generic RPC handlers. `connections` are the streams of xDS among what is open there."""

    name: str
    address: Address | None
    handlers: tuple[Any, ...]
    connections: Collection[Connection]


class GrpcPort:
    """A server of gRPC on its address. When it stops, open streams get a while to end. `number` is as in `HttpPort`."""

    def __init__(self, server: aio.Server, address: Address, connections: Collection[Connection], patience: Duration) -> None:
        self._server, self._address, self._connections, self._patience = server, address, connections, patience
        self.number = address.port

    async def start(self) -> None:
        """Listens. StartError where the address cannot be had."""
        try:
            self.number = self._server.add_insecure_port(str(self._address))
        except RuntimeError as error:
            raise StartError(f"cannot listen on {self._address}: {error}") from error
        await self._server.start()

    async def stop(self) -> None:
        _log.info("ending: open streams get %s", self._patience)
        await drain(self._server, self._connections, self._patience.seconds)

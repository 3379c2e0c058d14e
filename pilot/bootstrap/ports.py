"""Plaintext gRPC ports and HTTP ports of the process."""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from aiohttp import web
from grpc import aio

from pilot.lib.duration import Duration
from pilot.lib.logging.log import scope
from pilot.lib.port_owner import find_port_owner
from pilot.lib.start_error import StartError
from pilot.xds.net.http import listen
from pilot.xds.net.listen_address import Address
from pilot.xds.push.connection import Connection
from pilot.xds.server import drain

_log = scope("default")


def listen_error(address: Address, error: OSError | RuntimeError) -> StartError:
    """Return the error for an address that is unavailable. It names the flag and, if it is known, the other process."""
    place = f"{address} (--{address.flag})" if address.flag else str(address)
    is_in_use = not isinstance(error, OSError) or error.errno == errno.EADDRINUSE
    if is_in_use and (owner := find_port_owner(address.port)):
        return StartError(f"cannot listen on {place}: address already in use by {owner}; stop it, or use another port")
    if isinstance(error, RuntimeError):
        error = _bind_error(address) or error  # gRPC does not say why it cannot listen
    reason = (isinstance(error, OSError) and error.strerror) or str(error)
    if isinstance(error, OSError) and (error.errno or 0) > 0:
        reason = os.strerror(error.errno or 0)  # asyncio repeats the address in its own text
    if isinstance(error, OSError) and error.errno == errno.EADDRNOTAVAIL:
        reason = "this machine does not have the address"
    if isinstance(error, socket.gaierror):
        reason = "the host cannot be resolved; use an IP address of this machine, or only the port for all of them"
    hint = "; ports below 1024 require root" if isinstance(error, PermissionError) else ""
    return StartError(f"cannot listen on {place}: {reason}{hint}")


def _bind_error(address: Address) -> OSError | None:
    """Return why a socket cannot listen on an address, or None if it can."""
    try:
        family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
        socket.create_server((address.host, address.port), family=family).close()
    except OSError as error:
        return error
    return None


class HttpPort:
    """A port that serves an HTTP application.

    `number` is the actual port number once the port listens, even if the port in the address is 0. `tls` returns the
    TLS context. If it returns None, there is no certificate and the port does not listen. `takes_bodies` is as in
    `listen`.
    """

    def __init__(
        self,
        app: web.Application,
        address: Address,
        tls: Callable[[], ssl.SSLContext | None] | None = None,
        takes_bodies: bool = True,
    ) -> None:
        self._app, self._address, self._tls, self._takes_bodies = app, address, tls, takes_bodies
        self.number = address.port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen. Raise StartError if the address is unavailable."""
        context = self._tls() if self._tls is not None else None
        if self._tls is not None and context is None:
            return
        try:
            self._runner = await listen(self._app, self._address, context, self._takes_bodies)
        except OSError as error:
            raise listen_error(self._address, error) from error
        self.number = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class GrpcServices(NamedTuple):
    """The services of a gRPC port as generic RPC handlers. `connections` are the open xDS streams of the services."""

    name: str
    address: Address | None
    handlers: tuple[Any, ...]
    connections: Collection[Connection]


class GrpcPort:
    """A port that serves gRPC. On `stop`, open streams have `drain_duration` to end. `number` is as in `HttpPort`."""

    def __init__(
        self, server: aio.Server, address: Address, connections: Collection[Connection], drain_duration: Duration
    ) -> None:
        self._server, self._address, self._connections = server, address, connections
        self._drain_duration = drain_duration
        self.number = address.port

    async def start(self) -> None:
        """Listen. Raise StartError if the address is unavailable."""
        try:
            self.number = self._server.add_insecure_port(str(self._address))
        except RuntimeError as error:
            raise listen_error(self._address, error) from error
        await self._server.start()

    async def stop(self) -> None:
        _log.info("shutting down: draining open streams for up to %s", self._drain_duration)
        await drain(self._server, self._connections, self._drain_duration.seconds)

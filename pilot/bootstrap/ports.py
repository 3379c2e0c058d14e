"""The ports of the process as parts."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from aiohttp import web
from grpc import aio

from pilot.bootstrap.server_certificate import PortCertificate
from pilot.lib.duration import Duration
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.xds.address import Address
from pilot.xds.connection import Connection
from pilot.xds.drain import drain
from pilot.xds.http import listen
from pilot.xds.tls.client_names import names_in_certificate
from pilot.xds.tls.front import TlsFront

_log = scope("default")


class HttpPort:
    """An HTTP application on its address. `number` is that of the port, once it listens: another one where the address says 0.

    `tls` returns what handshakes are done with; where it returns None, nobody issues a certificate and the port does not listen.
    """

    def __init__(
        self, app: web.Application, address: Address, tls: Callable[[], ssl.SSLContext | None] | None = None
    ) -> None:
        self._app, self._address, self._tls = app, address, tls
        self.number = address.port
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listens. StartError where the address cannot be had."""
        context = self._tls() if self._tls is not None else None
        if self._tls is not None and context is None:
            return
        try:
            self._runner = await listen(self._app, self._address, context)
        except OSError as error:
            raise StartError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        self.number = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()


class SecurePort:
    """A server of gRPC behind TLS. It does not listen where nobody issues a certificate. `number` is as in `HttpPort`."""

    def __init__(
        self,
        server: aio.Server,
        front: TlsFront,
        certificate: PortCertificate,
        trust_domain: Callable[[], str],
        address: Address,
        connections: Collection[Connection],
        patience: Duration,
    ) -> None:
        self._server, self._front, self._certificate, self._trust_domain = server, front, certificate, trust_domain
        self._address, self._connections, self._patience = address, connections, patience
        self.number = address.port

    async def start(self) -> None:
        """Listens. StartError where the address cannot be had. Client certificates have to be of the trust domain that the mesh has now."""
        if self._certificate.context is None:
            return
        self._server.add_insecure_port(self._front.inner)
        await self._server.start()
        domain = self._trust_domain()
        try:
            names = functools.partial(names_in_certificate, trust_domain=domain)
            self.number = await self._front.listen(self._address, self._certificate.context, names)
        except OSError as error:
            await self._server.stop(None)
            raise StartError(f"cannot listen on {self._address}: {error.strerror or error}") from error
        self._certificate.on_change = self._front.use

    async def stop(self) -> None:
        if self._certificate.context is None:
            return
        self._front.stop_accepting()
        await drain(self._server, self._connections, self._patience.seconds)
        self._front.close()


class GrpcServices(NamedTuple):
    """What one port of gRPC serves: generic RPC handlers. `connections` are the streams of xDS among what is open there."""

    name: str
    address: Address | None
    handlers: tuple[Any, ...]
    connections: Collection[Connection]


class GrpcPort:
    """A server of gRPC on its address. When it stops, open streams get a while to end. `number` is as in `HttpPort`."""

    def __init__(
        self, server: aio.Server, address: Address, connections: Collection[Connection], patience: Duration
    ) -> None:
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

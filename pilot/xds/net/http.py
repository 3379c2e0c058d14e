"""Serves HTTP applications on ports, and adds the readiness endpoint."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from aiohttp import http_exceptions, web

from pilot.lib.logging.log import scope
from pilot.xds.net.http_connections import HttpConnections
from pilot.xds.net.listen_address import Address
from pilot.xds.net.listening_sockets import BACKLOG
from pilot.xds.net.tls_site import TlsSite

KEEPALIVE_TIMEOUT = 90.0
READ_BUFFER_SIZE = 16 * 1024
"""Number of unprocessed bytes of a request body at which reading from the connection pauses."""
LINGERING_SECONDS = 10.0
"""Maximum number of seconds for which the rest of a request body is discarded after the response has been sent, so that
the client can read the response."""


_MALFORMED = (http_exceptions.HttpProcessingError, web.RequestPayloadError)


class _BadRequestFilter(logging.Filter):
    """Drops log records about malformed requests. They are answered with 400 and are not errors in this process."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], _MALFORMED))


_log = scope("http")
_log.addFilter(_BadRequestFilter())


def add_ready(app: web.Application, is_ready: Callable[[], bool]) -> None:
    """Add the endpoint /ready, which returns 200 or 503 without a body."""

    async def ready(_: web.Request) -> web.Response:
        return web.Response(status=200 if is_ready() else 503)

    app.router.add_route("*", "/ready", ready)


async def listen(
    app: web.Application, address: Address, tls: ssl.SSLContext | None = None, takes_bodies: bool = True
) -> web.AppRunner:
    """Serve an application until `cleanup` of the returned runner is called. If `tls` is set, serve it over TLS.

    If `takes_bodies` is not set and the body of a request has not arrived when the request is answered, the connection
    is closed. Raise OSError if the address is unavailable.
    """
    connections = HttpConnections()
    connections.add_to(app)
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_log,
        keepalive_timeout=KEEPALIVE_TIMEOUT,
        handle_signals=False,
        read_bufsize=READ_BUFFER_SIZE,
        lingering_time=LINGERING_SECONDS if takes_bodies else 0.0,
        auto_decompress=False,  # 64 KiB of a compressed body would expand to 64 MiB at once
    )
    app.on_shutdown.append(connections.stop)
    await runner.setup()
    assert runner.server is not None
    connections.start(runner.server)
    site: web.BaseSite = (
        web.TCPSite(runner, address.host or None, address.port, backlog=BACKLOG)
        if tls is None
        else TlsSite(runner, address, tls)
    )
    try:
        await site.start()
    except OSError:
        await runner.cleanup()
        raise
    return runner

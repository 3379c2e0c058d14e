"""The plain HTTP ports serve readiness, and have a place for other pages."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable

from aiohttp import http_exceptions, web

from pilot.lib.log import scope
from pilot.xds.address import Address
from pilot.xds.http_connections import Connections

IDLE_SECONDS = 90.0


class _OfOurs(logging.Filter):
    """A filter of the log that leaves out malformed requests: they are answered with 400, and no error of this process."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not (record.exc_info and isinstance(record.exc_info[1], http_exceptions.HttpProcessingError))


_log = scope("http")
_log.addFilter(_OfOurs())


def add_ready(app: web.Application, is_ready: Callable[[], bool]) -> None:
    """Adds /ready, which answers 200 or 503 without a body."""

    async def ready(_: web.Request) -> web.Response:
        return web.Response(status=200 if is_ready() else 503)

    app.router.add_route("*", "/ready", ready)


async def listen(app: web.Application, address: Address, tls: ssl.SSLContext | None = None) -> web.AppRunner:
    """Serves an application until `cleanup` of the runner that is returned, with TLS where it is given. An address that cannot be had raises
    OSError."""
    connections = Connections()
    connections.add_to(app)
    runner = web.AppRunner(app, access_log=None, logger=_log, keepalive_timeout=IDLE_SECONDS, handle_signals=False)
    app.on_shutdown.append(connections.stop)
    await runner.setup()
    assert runner.server is not None
    connections.start(runner.server)
    try:
        await web.TCPSite(runner, address.host or None, address.port, ssl_context=tls).start()
    except OSError:
        await runner.cleanup()
        raise
    return runner

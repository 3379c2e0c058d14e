"""Creates gRPC servers with the limits in the settings, and drains them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from grpc import aio

from pilot.settings.declaration import FOREVER
from pilot.settings.process import ServeSettings
from pilot.xds.push.connection import Connection

MAX_PENDING_STREAMS = 10_000
"""Maximum number of streams of a port that wait for the event loop. gRPC ends additional streams, chosen at random,
with the status CANCELLED.

The maximum is several times the number of proxies that reconnect at once. A pending stream uses up to 16 KiB for its
headers.
"""
HANDSHAKE_TIMEOUT = 20
"""Number of seconds until a client must have sent the beginning of an HTTP/2 connection."""
IDLE_TIMEOUT = 300
"""Number of seconds after which a connection without streams is closed. Proxies always have one."""
_DRAIN_INTERVAL = 0.02
"""Number of seconds between checks for idle streams while a server is being drained."""


def make_server(settings: ServeSettings, services: Sequence[Any]) -> aio.Server:
    """Return a server that is not started yet. `services` are generic RPC handlers."""
    options = [
        ("grpc.so_reuseport", 0),  # a port that is in use is an error
        # gRPC would ping each sender to measure the bandwidth-delay product, which costs a fifth of its CPU time.
        # Requests are small (docs/adr/011-the-cost-of-grpc.md).
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", settings.max_streams),
        ("grpc.server.max_pending_requests", MAX_PENDING_STREAMS),
        ("grpc.server.max_pending_requests_hard_limit", MAX_PENDING_STREAMS),
        ("grpc.max_receive_message_length", settings.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", _milliseconds(settings.keepalive_interval)),
        ("grpc.keepalive_timeout_ms", _milliseconds(settings.keepalive_timeout)),
        # This is the effective timeout. Its default is a minute.
        ("grpc.http2.ping_timeout_ms", _milliseconds(settings.keepalive_timeout)),
        ("grpc.keepalive_permit_without_calls", 1),
        # gRPC spends 80 µs on each ping that it counts as a strike, even after it has ended the connection. An
        # acknowledgement costs less than a hundredth of that.
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT * 1000),
        ("grpc.max_connection_idle_ms", IDLE_TIMEOUT * 1000),
    ]
    if settings.max_connection_age < FOREVER:
        options += [
            ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age)),
            ("grpc.max_connection_age_grace_ms", 10_000),
        ]
    server = aio.server(options=options)
    server.add_generic_rpc_handlers(tuple(services))
    return server


def _milliseconds(duration: int) -> int:
    return min(max(duration // 1_000_000, 1), 2**31 - 1)


async def drain(server: aio.Server, connections: Collection[Connection], seconds: float) -> None:
    """Accept no more streams, and end each stream when its proxy is up to date. After `seconds`, end all remaining
    streams.

    `connections` is a live view of the server's streams.
    """
    stopping = asyncio.create_task(server.stop(seconds))
    while not stopping.done():
        for connection in tuple(connections):
            if connection.is_idle:
                connection.end()
        await asyncio.wait((stopping,), timeout=_DRAIN_INTERVAL)
    await stopping

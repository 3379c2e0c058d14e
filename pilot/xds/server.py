"""A gRPC server is made here with the limits of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grpc import aio

from pilot.settings.declaration import FOREVER
from pilot.settings.process import ServeSettings


def make_server(settings: ServeSettings, services: Sequence[Any]) -> aio.Server:
    """Returns a server of these services (generic RPC handlers) that is not started yet."""
    options = [
        ("grpc.so_reuseport", 0),  # a port that is in use is an error
        # gRPC would ping whoever sends, to learn how wide a window requests need: a fifth of its cost, and requests are small (docs/adr/011)
        ("grpc.http2.bdp_probe", 0),
        ("grpc.max_concurrent_streams", settings.max_streams),
        # New streams wait for the event loop; beyond 1,000 gRPC would end some of them at random, CANCELLED and without a word
        ("grpc.server.max_pending_requests", settings.max_streams),
        ("grpc.server.max_pending_requests_hard_limit", settings.max_streams),
        ("grpc.max_receive_message_length", settings.max_receive_bytes),
        ("grpc.max_send_message_length", -1),
        ("grpc.keepalive_time_ms", _milliseconds(settings.keepalive_interval)),
        ("grpc.keepalive_timeout_ms", _milliseconds(settings.keepalive_timeout)),
        (
            "grpc.http2.ping_timeout_ms",
            _milliseconds(settings.keepalive_timeout),
        ),  # it decides; a minute where it is not set
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.min_ping_interval_without_data_ms", _milliseconds(settings.keepalive_interval) // 2),
    ]
    if settings.max_connection_age < FOREVER:
        options += [
            ("grpc.max_connection_age_ms", _milliseconds(settings.max_connection_age)),
            ("grpc.max_connection_age_grace_ms", 10_000),
        ]
    made = aio.server(options=options)
    made.add_generic_rpc_handlers(tuple(services))
    return made


def _milliseconds(duration: int) -> int:
    return min(max(duration // 1_000_000, 1), 2**31 - 1)

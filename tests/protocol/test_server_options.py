"""gRPC options of the xDS server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pilot.lib.duration import parse_duration
from pilot.settings.process import ServeSettings
from pilot.xds import server as server_module
from pilot.xds.server import make_server


def server_options(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> dict[str, int]:
    """Return the gRPC options of a server with the settings."""
    recorded: list[tuple[str, int]] = []

    def server(options: list[tuple[str, int]]) -> Any:
        recorded.extend(options)
        return SimpleNamespace(add_generic_rpc_handlers=lambda handlers: None)

    monkeypatch.setattr(server_module, "aio", SimpleNamespace(server=server))
    make_server(ServeSettings(**settings), [])
    assert len(dict(recorded)) == len(recorded)
    return dict(recorded)


DEFAULTS = {
    "grpc.so_reuseport": 0,
    "grpc.http2.bdp_probe": 0,
    "grpc.max_concurrent_streams": 250,
    "grpc.server.max_pending_requests": 10_000,
    "grpc.server.max_pending_requests_hard_limit": 10_000,
    "grpc.max_receive_message_length": 4 << 20,
    "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": 30_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.http2.ping_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.http2.max_ping_strikes": 0,
    "grpc.server_handshake_timeout_ms": 20_000,
    "grpc.max_connection_idle_ms": 300_000,
}


def test_default_options(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_options(monkeypatch) == DEFAULTS


def test_limits_and_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    options = server_options(
        monkeypatch,
        max_streams=5,
        max_receive_bytes=6,
        keepalive_interval=parse_duration("0s"),
        keepalive_timeout=parse_duration("1000000h"),
    )
    assert {name: value for name, value in options.items() if DEFAULTS[name] != value} == {
        "grpc.max_concurrent_streams": 5,
        "grpc.max_receive_message_length": 6,
        "grpc.keepalive_time_ms": 1,
        "grpc.keepalive_timeout_ms": 2**31 - 1,
        "grpc.http2.ping_timeout_ms": 2**31 - 1,
    }


@pytest.mark.parametrize(
    ("age", "milliseconds"),
    [("24h", 86_400_000), ("1500us", 1), ("1ns", 1), ("2ms", 2), ("2h", 7_200_000), ("2000h", 2**31 - 1)],
)
def test_max_connection_age(age: str, milliseconds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_options(monkeypatch, max_connection_age=parse_duration(age)) == DEFAULTS | {
        "grpc.max_connection_age_ms": milliseconds,
        "grpc.max_connection_age_grace_ms": 10_000,
    }

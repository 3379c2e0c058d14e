"""The Unix sockets on which Envoy finds the agent."""

from __future__ import annotations

import pathlib
import socket

from grpc import aio

from pilot.lib.start_error import StartError

EOF = aio.EOF  # type: ignore[attr-defined]
"""What reading from a stream of gRPC returns at its end; its stubs do not know it."""
LONGEST_PATH = 107
"""Bytes of a Unix socket's path on Linux."""
SECONDS = 1.0


def is_listening(path: str) -> bool:
    """Returns whether somebody accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(SECONDS)
        try:
            probe.connect(path)
        except OSError:
            return False
        return True


def prepare(path: str) -> None:
    """Makes the folder of a socket, and removes the socket that an earlier agent left. StartError where it cannot."""
    if len(path.encode()) > LONGEST_PATH:
        raise StartError(f"the path of the socket {path} has more than {LONGEST_PATH} bytes")
    try:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise StartError(f"there can be no socket at {path}: {error.strerror}") from error


def build_server() -> aio.Server:
    """Returns a gRPC server for Envoy, with messages of any size."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return aio.server(
        options=[
            *sizes,
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ]
    )


async def serve(server: aio.Server, path: str, private: bool) -> None:
    """Serves on a Unix socket; `private`: for the agent's own user alone. StartError where it cannot."""
    prepare(path)
    try:
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        if private:
            pathlib.Path(path).chmod(0o600)
    except (RuntimeError, OSError) as error:
        raise StartError(f"there can be no socket at {path}: {error}") from error

"""The Unix sockets between Envoy and the agent."""

from __future__ import annotations

import pathlib
import socket

from grpc import aio

from pilot.agent.agent_settings import AgentSettings
from pilot.config.mesh.proxy_config import ProxyConfig
from pilot.lib.start_error import StartError

XDS_SOCKET = "XDS"
SDS_DIRECTORY = "./var/run/secrets/workload-spiffe-uds"
EOF = aio.EOF  # type: ignore[attr-defined]
"""The value that a read from a gRPC stream returns at the end of the stream. grpcio's type stubs do not declare it."""
MAX_PATH_BYTES = 107
"""Maximum length in bytes of the path of a Unix socket on Linux."""
CONNECT_SECONDS = 1.0


def xds_socket(config: ProxyConfig) -> str:
    """Return the path of the Unix socket for xDS."""
    return f"{config.config_path}/{XDS_SOCKET}"


def sds_socket(settings: AgentSettings) -> str:
    """Return the path of the Unix socket for SDS."""
    return f"{SDS_DIRECTORY}/{settings.certificate.socket}"


def is_listening(path: str) -> bool:
    """Return whether a process accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(CONNECT_SECONDS)
        try:
            client.connect(path)
        except OSError:
            return False
        return True


def prepare_path(path: str) -> None:
    """Create the directory of a Unix socket and remove a stale socket. Raises StartError."""
    if len(path.encode()) > MAX_PATH_BYTES:
        raise StartError(f"the socket path {path} is longer than {MAX_PATH_BYTES} bytes")
    try:
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(path).unlink(missing_ok=True)
    except OSError as error:
        raise StartError(f"cannot create the socket {path}: {error.strerror}") from error


def build_server() -> aio.Server:
    """Return a gRPC server for Envoy. It does not limit the size of messages."""
    sizes = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return aio.server(
        options=[
            *sizes,
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", 5000),
        ]
    )


async def serve(server: aio.Server, path: str, private: bool) -> None:
    """Start a server on a Unix socket. If `private`, only the agent's user can connect. Raises StartError."""
    prepare_path(path)
    try:
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        if private:
            pathlib.Path(path).chmod(0o600)
    except (RuntimeError, OSError) as error:
        raise StartError(f"cannot create the socket {path}: {error}") from error

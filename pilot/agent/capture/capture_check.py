"""Validation of traffic capture: a connection from the proxy to its own pod must arrive at the proxy."""

from __future__ import annotations

import os
import socket
import struct

from pilot.agent.capture.pod_network import Address

ORIGINAL_DESTINATION = {socket.AF_INET: (socket.IPPROTO_IP, 80), socket.AF_INET6: (socket.IPPROTO_IPV6, 80)}
DESTINATION_BYTES = 28


class CaptureCheckError(Exception):
    """A test connection did not reach the proxy. The message describes the attempt."""


def check_capture(address: Address, port: int, inbound_port: int, user: int, timeout: float) -> None:
    """Connect to a port of this pod as the proxy's user.

    Raises CaptureCheckError if the connection does not arrive at the proxy's inbound port in time.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family) as proxy:
        proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        proxy.settimeout(timeout)
        try:
            proxy.bind(("", inbound_port))
            proxy.listen(1)
            with _create_socket(user, family) as client:
                client.settimeout(timeout)
                client.connect((str(address), port))
                connection, _ = proxy.accept()
        except OSError as error:
            raise CaptureCheckError(
                f"a connection to {address} port {port} was not redirected to port {inbound_port}: {error}"
            ) from error
        with connection:
            original_port = _original_port(connection)
    if original_port != port:
        raise CaptureCheckError(
            f"a connection to {address} port {port} was redirected to port {inbound_port}, "
            f"but its original destination is port {original_port}"
        )


def _create_socket(user: int, family: int) -> socket.socket:
    """Return a socket whose packets belong to a user. Unless this process is root, they belong to its own user."""
    current_user = os.geteuid()
    if current_user != 0:
        return socket.socket(family)
    os.seteuid(user)
    try:
        return socket.socket(family)
    finally:
        os.seteuid(current_user)


def _original_port(connection: socket.socket) -> int:
    port: int = struct.unpack_from(
        ">H", connection.getsockopt(*ORIGINAL_DESTINATION[connection.family], DESTINATION_BYTES), 2
    )[0]
    return port

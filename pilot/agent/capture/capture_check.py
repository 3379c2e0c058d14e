"""Whether connections are captured: one that the proxy makes to its own pod has to arrive at the proxy."""

from __future__ import annotations

import os
import socket
import struct

from pilot.agent.capture.errors import CaptureCheckError
from pilot.agent.capture.pod_network import Address

ORIGINAL_DESTINATION = {socket.AF_INET: (socket.IPPROTO_IP, 80), socket.AF_INET6: (socket.IPPROTO_IPV6, 80)}
DESTINATION_BYTES = 28


def probe(address: Address, port: int, inbound_port: int, user: int, seconds: float) -> None:
    """Connects to a port of this pod as the proxy. CaptureCheckError where that does not arrive at the proxy's own port within the time."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    with socket.socket(family) as proxy:
        proxy.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        proxy.settimeout(seconds)
        try:
            proxy.bind(("", inbound_port))
            proxy.listen(1)
            with _socket_of(user, family) as caller:
                caller.settimeout(seconds)
                caller.connect((str(address), port))
                accepted, _ = proxy.accept()
        except OSError as error:
            raise CaptureCheckError(
                f"a connection to {address} port {port} does not arrive at port {inbound_port}: {error}"
            ) from error
        with accepted:
            meant = _original_port(accepted)
    if meant != port:
        raise CaptureCheckError(
            f"a connection to {address} port {port} arrives at port {inbound_port} as one for port {meant}"
        )


def _socket_of(user: int, family: int) -> socket.socket:
    """Returns a socket of a user: what it sends is that user's. Only root can make that of another."""
    own = os.geteuid()
    if own != 0:
        return socket.socket(family)
    os.seteuid(user)
    try:
        return socket.socket(family)
    finally:
        os.seteuid(own)


def _original_port(accepted: socket.socket) -> int:
    port: int = struct.unpack_from(
        ">H", accepted.getsockopt(*ORIGINAL_DESTINATION[accepted.family], DESTINATION_BYTES), 2
    )[0]
    return port

"""How a server of configuration objects is verified, by the TLS settings of its source."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import grpc

from pilot.config.networking.destination_rule import ClientTLSSettings
from pilot.mcp.stream import CannotConnectError

ReadSecret = Callable[[str], Awaitable[Mapping[str, bytes]]]
"""Returns the data of a Secret in the namespace of the control plane, by its name; none where it is not there."""
_ROOTS = ("cacert", "ca.crt")


async def server_credentials(
    tls: ClientTLSSettings | None, read_secret: ReadSecret | None
) -> grpc.ChannelCredentials | None:
    """Returns the credentials of a connection, from files and Secrets as they are now; None for plain text. CannotConnectError where they are
    not there."""
    if tls is None or tls.mode == "DISABLE":
        return None
    if tls.credential_name:
        roots = await _secret_roots(tls.credential_name, read_secret)
    else:
        roots = _read(tls.ca_certificates)
    if tls.mode == "MUTUAL" and tls.client_certificate:
        return grpc.ssl_channel_credentials(roots, _read(tls.private_key), _read(tls.client_certificate))
    return grpc.ssl_channel_credentials(roots)


def server_name(tls: ClientTLSSettings | None) -> str:
    """Returns the name that the server's certificate must have, "" for the host of its address."""
    if tls is None or tls.mode == "DISABLE":
        return ""
    return tls.subject_alt_names[0] if tls.subject_alt_names else tls.sni


async def _secret_roots(name: str, read_secret: ReadSecret | None) -> bytes:
    found = await read_secret(name) if read_secret is not None else {}
    for key in _ROOTS:
        if found.get(key):
            return found[key]
    raise CannotConnectError(f"there is no Secret {name} with {' or '.join(_ROOTS)}")


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise CannotConnectError(f"{path}: {error.strerror or error}") from error

"""The filters of `proxy-config`, which are the same as istioctl's."""

from __future__ import annotations

from typing import Any, NamedTuple


class Filters(NamedTuple):
    """The resources that the user asks for. A filter with the value "" or 0 admits all resources.

    `fqdn` and `subset` are parts of the name. The other filters are whole values.
    """

    fqdn: str = ""
    port: int = 0
    direction: str = ""
    subset: str = ""
    name: str = ""
    cluster: str = ""
    address: str = ""
    status: str = ""


def socket_of(envoy_address: dict[str, Any]) -> tuple[str, int]:
    """Return the address and port of an Envoy address, or the path of a Unix socket or the name of an internal listener
    and the port 0."""
    if socket := envoy_address.get("socketAddress"):
        return socket.get("address", ""), socket.get("portValue", 0)
    if pipe := envoy_address.get("pipe"):
        return f"unix://{pipe.get('path', '')}", 0
    return f"internal {envoy_address.get('envoyInternalAddress', {}).get('serverListenerName', '')}", 0

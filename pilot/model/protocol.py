"""The protocol that a port speaks, by what its declaration says about it."""

from __future__ import annotations

from pilot.model.service import Protocol

_BY_NAME = {p.value.lower(): p for p in Protocol if p not in (Protocol.HBONE, Protocol.UNSUPPORTED)}
_APP_PROTOCOLS = {
    "kubernetes.io/h2c": Protocol.HTTP2,
    "kubernetes.io/ws": Protocol.HTTP,
    "kubernetes.io/wss": Protocol.HTTPS,
}
_SERVER_FIRST = frozenset(
    {25, 53, 3306, 27017}
)  # SMTP, DNS, MySQL, MongoDB: a client that waits to detect them waits forever


def parse_protocol(name: str) -> Protocol:
    """Returns the protocol of a name as users write it, in any case; UNSUPPORTED if there is none of that name."""
    return _BY_NAME.get(name.lower(), Protocol.UNSUPPORTED)


def port_protocol(number: int, name: str, transport: str, app_protocol: str | None) -> Protocol:
    """Returns the protocol of a port of a Kubernetes Service: that of appProtocol, else of the port's name up to its first hyphen.

    https://istio.io/latest/docs/ops/configuration/traffic-management/protocol-selection/
    """
    if transport == "UDP":
        return Protocol.UDP
    if app_protocol is not None:
        if known := _APP_PROTOCOLS.get(app_protocol):
            return known
        name = app_protocol
    if name[:8].lower() == "grpc-web":
        return Protocol.GRPC_WEB
    found = parse_protocol(name.partition("-")[0])
    return Protocol.TCP if found is Protocol.UNSUPPORTED and number in _SERVER_FIRST else found

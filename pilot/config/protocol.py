"""Protocols of ports."""

from __future__ import annotations

import enum


class Protocol(enum.StrEnum):
    """The protocol of a port in Istio's terms. UNSUPPORTED means unspecified, so the proxy detects the protocol."""

    HTTP = "HTTP"
    HTTP2 = "HTTP2"
    HTTPS = "HTTPS"
    HTTP_PROXY = "HTTP_PROXY"
    GRPC = "GRPC"
    GRPC_WEB = "GRPC-Web"
    TCP = "TCP"
    TLS = "TLS"
    UDP = "UDP"
    MONGO = "Mongo"
    REDIS = "Redis"
    MYSQL = "MySQL"
    HBONE = "HBONE"
    UNSUPPORTED = "UnsupportedProtocol"

    @property
    def is_http(self) -> bool:
        return self in _HTTP

    @property
    def is_http2(self) -> bool:
        return self in (Protocol.HTTP2, Protocol.GRPC, Protocol.GRPC_WEB)

    @property
    def is_tcp(self) -> bool:
        return self in _TCP

    @property
    def is_tls(self) -> bool:
        return self in (Protocol.HTTPS, Protocol.TLS)


_HTTP = frozenset({Protocol.HTTP, Protocol.HTTP2, Protocol.HTTP_PROXY, Protocol.GRPC, Protocol.GRPC_WEB})
_TCP = frozenset({Protocol.TCP, Protocol.HTTPS, Protocol.TLS, Protocol.MONGO, Protocol.REDIS, Protocol.MYSQL})


_BY_NAME = {p.value.lower(): p for p in Protocol if p not in (Protocol.HBONE, Protocol.UNSUPPORTED)}
_APP_PROTOCOLS = {
    "kubernetes.io/h2c": Protocol.HTTP2,
    "kubernetes.io/ws": Protocol.HTTP,
    "kubernetes.io/wss": Protocol.HTTPS,
}
_SERVER_FIRST = frozenset(
    {25, 53, 3306, 27017}
)  # SMTP, DNS, MySQL, MongoDB: the server speaks first, so detection would wait forever


def parse_protocol(name: str) -> Protocol:
    """Return the protocol with a case-insensitive name, or UNSUPPORTED if the name is unknown."""
    return _BY_NAME.get(name.lower(), Protocol.UNSUPPORTED)


def port_protocol(number: int, name: str, transport: str, app_protocol: str | None) -> Protocol:
    """Return the protocol of a port of a Kubernetes Service.

    It is determined by appProtocol if set, otherwise by the part of the port name before the first hyphen.
    https://istio.io/latest/docs/ops/configuration/traffic-management/protocol-selection/
    """
    if transport == "UDP":
        return Protocol.UDP
    if app_protocol is not None:
        if protocol := _APP_PROTOCOLS.get(app_protocol):
            return protocol
        name = app_protocol
    if name[:8].lower() == "grpc-web":
        return Protocol.GRPC_WEB
    by_name = parse_protocol(name.partition("-")[0])
    return Protocol.TCP if by_name is Protocol.UNSUPPORTED and number in _SERVER_FIRST else by_name

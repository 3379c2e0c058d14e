"""Ports with a TCP or TLS protocol, in whose connections proxies do not see requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pilot.config.protocol import Protocol, parse_protocol
from pilot.mesh.model.service import Port, Registry, Service

CONNECTIONS_CLOSED, REQUESTS_FAIL = "connections are closed", "requests get 503"
_MAX_PORTS = 3
"""Maximum number of ports that a text names."""


def opaque_ports(of_services: Iterable[tuple[Service, Port]]) -> tuple[tuple[Service, Port], ...]:
    """Return ports of services if proxies see requests at none of them. UDP ports do not count."""
    ports = [(one, port) for one, port in of_services if port.protocol is not Protocol.UDP]
    return tuple(ports) if all(port.protocol.is_tcp for _, port in ports) else ()


def ports_of(services: Iterable[Service]) -> Iterator[tuple[Service, Port]]:
    """Yield each port of services, with its service."""
    return ((one, port) for one in services for port in one.ports)


def failure_of(one: Service) -> str:
    """Return what happens to the clients of a service that has no usable endpoint."""
    return CONNECTIONS_CLOSED if opaque_ports(ports_of((one,))) else REQUESTS_FAIL


def describe_ports(ports: Iterable[tuple[Service, Port]]) -> str:
    """Return the protocols of ports and where they are declared, such as `port 80 is TCP by its name tcp-web`."""
    texts = list(dict.fromkeys(_describe(one, port) for one, port in ports))
    more = f" and {len(texts) - _MAX_PORTS} more are such ports" if len(texts) > _MAX_PORTS else ""
    return ", ".join(texts[:_MAX_PORTS]) + more


def _describe(one: Service, port: Port) -> str:
    text = f"port {port.number} is {port.protocol}"
    if one.registry is Registry.EXTERNAL:
        return f"{text} in ServiceEntry {one.source.namespace}/{one.source.name}"
    return f"{text} by its name {port.name}" if _is_by_name(port) else text


def remedy_for_http(one: Service, port: Port) -> str:
    """Return what to change so that proxies treat a port as HTTP."""
    if one.registry is Registry.EXTERNAL:
        return "set its protocol: HTTP"
    rest = port.name.partition("-")[2]
    name = f"name it {'-'.join(filter(None, ('http', rest)))} or " if _is_by_name(port) else ""
    return f"{name}set its appProtocol: http"


def _is_by_name(port: Port) -> bool:
    return parse_protocol(port.name.partition("-")[0]) is port.protocol

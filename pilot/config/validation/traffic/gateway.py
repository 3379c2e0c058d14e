"""Validation of Gateways."""

from __future__ import annotations

from pilot.config.networking.gateway import Gateway, Port, Server
from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.protocol import Protocol, parse_protocol
from pilot.config.validation import rules
from pilot.config.validation.traffic.tls import validate_server_tls

_TLS = ": write tls: {mode: SIMPLE, credentialName: NAME-OF-A-SECRET}"


def validate_gateway(o: Object[Gateway]) -> Problems:
    if not rules.is_dns_label(o.name):
        yield error(
            "bad-name",
            "metadata.name",
            f"{o.name!r}: must be 1 to 63 letters, digits and hyphens",
        )
    yield from below("spec", _validate(o.spec))


def _validate(gateway: Gateway) -> Problems:
    if not gateway.servers:
        yield error("missing-field", "servers", "at least one server is required")
    yield from each("servers", gateway.servers, _validate_server)
    names: set[str] = set()
    for index, server in enumerate(gateway.servers):
        if server.port is not None:
            if server.port.name in names:
                yield error("duplicate-name", f"servers[{index}].port.name", f"duplicate {server.port.name!r}")
            names.add(server.port.name)


def _validate_server(server: Server) -> Problems:
    if not server.hosts:
        yield error("missing-field", "hosts", "at least one host is required")
    for index, host in enumerate(server.hosts):
        yield from rules.check_scoped_host(f"hosts[{index}]", host, gateway=True)
    if server.port is None:
        yield error("missing-field", "port", "a port is required")
    else:
        yield from below("port", _validate_port(server.port, server.bind))
        yield from _check_tls_there(server, parse_protocol(server.port.protocol))
    if server.bind.startswith(rules.UNIX):
        yield from rules.check_unix("bind", server.bind.removeprefix(rules.UNIX))
        if server.port is not None and server.port.number:
            yield error("exclusive-fields", "port.number", "must be 0 if bind is a Unix socket")
    elif server.bind:
        yield from rules.check_address("bind", server.bind)
    if server.tls is not None:
        yield from below("tls", validate_server_tls(server.tls))


def _validate_port(port: Port, bind: str) -> Problems:
    if parse_protocol(port.protocol) is Protocol.UNSUPPORTED:
        yield error("bad-protocol", "protocol", f"unknown protocol {port.protocol!r}: expected {rules.PROTOCOLS}")
    if port.number or not bind.startswith(rules.UNIX):
        yield from rules.check_port("number", port.number)
    if port.target_port:
        yield error("no-effect", "targetPort", "has no effect in a Gateway")
    if not port.name:
        yield error("missing-field", "name", "a port name is required")


def _check_tls_there(server: Server, protocol: Protocol) -> Problems:
    """Yield an error if TLS settings are missing, or if they are set for a protocol without TLS.

    HTTP servers may have TLS settings without certificates, for redirects to HTTPS.
    """
    if protocol is Protocol.UNSUPPORTED:
        return
    tls = server.tls
    if tls is None:
        if protocol.is_tls:
            yield error("tls-needed", "tls", f"{server.port and server.port.protocol} requires TLS settings{_TLS}")
        return
    if not protocol.is_http and tls.https_redirect:
        yield warning("no-effect", "tls.httpsRedirect", "only HTTP servers can redirect to HTTPS")
    if protocol.is_tls:
        return
    redirects = protocol.is_http and tls.mode in ("PASSTHROUGH", "AUTO_PASSTHROUGH")
    if not redirects or tls.ca_certificates or tls.private_key or tls.server_certificate:
        yield error("tls-not-allowed", "tls", f"{server.port and server.port.protocol} cannot have TLS settings")

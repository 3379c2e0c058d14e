"""Validation of Sidecars."""

from __future__ import annotations

from collections.abc import Iterator

from pilot.config.networking.sidecar import (
    IstioEgressListener,
    IstioIngressListener,
    OutboundTrafficPolicy,
    Sidecar,
    SidecarPort,
)
from pilot.config.object import Object
from pilot.config.problem import Problem, Problems, below, error, warning
from pilot.config.protocol import parse_protocol
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_sidecar, limited
from pilot.config.validation.traffic.http_route import validate_destination
from pilot.config.validation.traffic.tls import validate_server_tls
from pilot.config.validation.traffic.traffic_policy import validate_connection_pool

_LOCAL = frozenset({"", "127.0.0.1", "0.0.0.0", "::1", "::"})


def validate_sidecar(o: Object[Sidecar]) -> Problems:
    yield from below("spec", limited(check_sidecar(o.spec), _validate(o.spec, o.namespace)))


def _validate(sidecar: Sidecar, namespace: str) -> Problems:
    if (selector := sidecar.workload_selector) is not None:
        yield from rules.check_selector("workloadSelector", selector.labels, "labels")
    policy, pool = sidecar.outbound_traffic_policy, sidecar.inbound_connection_pool
    if not sidecar.egress and not sidecar.ingress and policy is None and pool is None:
        yield error(
            "missing-field", "", "one of ingress, egress, outboundTrafficPolicy and inboundConnectionPool is required"
        )
    for index, ingress in enumerate(sidecar.ingress):
        yield from below(f"ingress[{index}]", _validate_ingress(ingress))
    yield from _check_distinct("ingress", [listener.port for listener in sidecar.ingress])
    if pool is not None:
        yield from below("inboundConnectionPool", validate_connection_pool(pool))
    for index, egress in enumerate(sidecar.egress):
        if egress.port is None and index < len(sidecar.egress) - 1:
            yield error("catch-all-not-last", f"egress[{index}]", "only the last egress listener may have no port")
        yield from below(f"egress[{index}]", _validate_egress(egress, namespace))
    yield from _check_distinct("egress", [listener.port for listener in sidecar.egress])
    yield from _check_sockets(sidecar.egress)
    if policy is not None:
        yield from below("outboundTrafficPolicy", _validate_outbound(policy))


def _check_distinct(field: str, ports: list[SidecarPort | None]) -> Iterator[Problem]:
    numbers: set[int] = set()
    for index, port in enumerate(ports):
        if port is not None and port.number:
            if port.number in numbers:
                yield error("duplicate-port", f"{field}[{index}].port.number", f"duplicate {port.number}")
            numbers.add(port.number)


def _check_sockets(listeners: tuple[IstioEgressListener, ...]) -> Iterator[Problem]:
    sockets: set[str] = set()
    for index, listener in enumerate(listeners):
        if listener.port is not None and listener.port.number == 0:
            if listener.bind in sockets:
                yield error("duplicate-port", f"egress[{index}].bind", f"duplicate {listener.bind!r}")
            sockets.add(listener.bind)


def _check_port(port: SidecarPort) -> Problems:
    if port.name:
        yield from rules.check_port_name("name", port.name)
    yield from rules.check_protocol("protocol", port.protocol)
    if port.target_port:
        yield error("no-effect", "targetPort", "has no effect in a Sidecar")


def _validate_ingress(listener: IstioIngressListener) -> Problems:
    port = listener.port
    if port is None:
        yield error("missing-field", "port", "a port is required")
        return
    yield from below("port", _check_port(port))
    yield from rules.check_port("port.number", port.number)
    if listener.bind:
        yield from rules.check_address("bind", listener.bind)
    if listener.default_endpoint:
        yield from _check_endpoint(listener.default_endpoint)
    if listener.tls is not None:
        yield from _check_ingress_tls(listener, port)
    if (pool := listener.connection_pool) is not None:
        yield from below("connectionPool", validate_connection_pool(pool))
        if pool.http is not None and not parse_protocol(port.protocol).is_http:
            yield warning("no-effect", "connectionPool.http", f"has no effect on a {port.protocol} port")


def _check_endpoint(endpoint: str) -> Problems:
    if endpoint.startswith(rules.UNIX):
        yield from rules.check_unix("defaultEndpoint", endpoint.removeprefix(rules.UNIX))
        return
    host, colon, number = endpoint.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not colon or host not in _LOCAL:
        message = f"{endpoint!r}: expected 127.0.0.1:PORT, 0.0.0.0:PORT, [::1]:PORT, [::]:PORT or unix://PATH"
        yield error("bad-default-endpoint", "defaultEndpoint", message)
    elif not rules.is_number(number):
        yield error("bad-port", "defaultEndpoint", f"{number!r} is not a valid port: must be between 1 and 65535")
    else:
        yield from rules.check_port("defaultEndpoint", int(number))
        if not host:
            yield warning(
                "no-effect",
                "defaultEndpoint",
                f"{endpoint!r} has no effect without an address: traffic goes to its original destination",
            )


def _check_ingress_tls(listener: IstioIngressListener, port: SidecarPort) -> Problems:
    tls = listener.tls
    assert tls is not None
    unsupported = {
        "subjectAltNames": tls.subject_alt_names,
        "httpsRedirect": tls.https_redirect,
        "credentialName": tls.credential_name,
        "credentialNames": tls.credential_names,
        "tlsCertificates": tls.tls_certificates,
    }
    for field, value in unsupported.items():
        if value:
            yield error("not-supported", f"tls.{field}", f"{field} is not supported here")
    if tls.mode in ("ISTIO_MUTUAL", "AUTO_PASSTHROUGH"):
        yield error("not-supported", "tls.mode", f"{tls.mode} is not supported here")
    if not parse_protocol(port.protocol).is_tls:
        yield error("tls-not-allowed", "tls", f"a {port.protocol} port cannot have TLS settings")
    yield from below("tls", validate_server_tls(tls))


def _validate_egress(listener: IstioEgressListener, namespace: str) -> Problems:
    if (port := listener.port) is not None:
        yield from below("port", _check_port(port))
        if port.number:
            yield from rules.check_port("port.number", port.number)
            if listener.bind:
                yield from rules.check_address("bind", listener.bind)
        elif not listener.bind.startswith(rules.UNIX):
            yield error("bad-port", "port.number", "must not be 0 unless the listener binds to a Unix socket")
        else:
            yield from rules.check_unix("bind", listener.bind.removeprefix(rules.UNIX))
            if listener.capture_mode == "IPTABLES":
                yield error("bad-capture-mode", "captureMode", "traffic to a Unix socket cannot be captured")
    if not listener.hosts:
        yield error("missing-field", "hosts", "at least one host is required")
    for index, host in enumerate(listener.hosts):
        yield from rules.check_scoped_host(f"hosts[{index}]", host, gateway=False)
    yield from _find_covered(listener.hosts, namespace)


def _find_covered(hosts: tuple[str, ...], namespace: str) -> Iterator[Problem]:
    """Yield a warning for each host that overlaps with an earlier host in the same namespace."""
    hosts_by_scope: dict[str, set[str]] = {}
    for index, text in enumerate(hosts):
        scope, slash, host = text.partition("/")
        if not slash or scope.startswith("~"):
            continue
        earlier = hosts_by_scope.setdefault(namespace if scope == "." else scope, set())
        if host in earlier or "*" in earlier or (host == "*" and earlier):
            yield warning("duplicate-host", f"hosts[{index}]", f"{text!r} overlaps with another host in its namespace")
        earlier.add(host)
    if "*" in hosts_by_scope.get("*", ()) and len(hosts_by_scope) > 1:
        yield warning("duplicate-host", "hosts", "other hosts have no effect if '*/*' is listed")


def _validate_outbound(policy: OutboundTrafficPolicy) -> Problems:
    if (proxy := policy.egress_proxy) is None:
        return
    if policy.mode != "ALLOW_ANY":
        yield error("exclusive-fields", "egressProxy", "requires mode ALLOW_ANY")
    yield from rules.check_name("egressProxy.host", proxy.host)
    if proxy.port is None:
        yield error("missing-field", "egressProxy.port", "a port is required")
    yield from below("egressProxy", (p for p in validate_destination(proxy) if p.path != "host"))

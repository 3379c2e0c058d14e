"""Validation of WorkloadEntries and WorkloadGroups."""

from __future__ import annotations

from collections.abc import Collection

from pilot.config.networking.workload_entry import WorkloadEntry, WorkloadEntryObject
from pilot.config.networking.workload_group import ReadinessProbe, WorkloadGroup
from pilot.config.object import Object
from pilot.config.problem import Problem, Problems, below, error, warning
from pilot.config.validation import rules
from pilot.config.validation.traffic.headers import check_strict_name
from pilot.lib.addresses import is_ip


def validate_workload_entry(o: Object[WorkloadEntryObject]) -> Problems:
    yield from below("spec", check_workload(o.spec, None, names=True))


def check_workload(entry: WorkloadEntry, ports: Collection[str] | None, names: bool) -> Problems:
    """Yield the problems of a workload entry.

    `ports` contains the port names of the ServiceEntry that contains the workload entry, or is None for an entry
    outside a ServiceEntry. `names` is set if the address may be a domain name.
    """
    unix = entry.address.startswith(rules.UNIX)
    if unix:
        yield from rules.check_unix("address", entry.address.removeprefix(rules.UNIX))
        if entry.ports:
            yield error("exclusive-fields", "ports", "a Unix socket cannot have ports")
        if ports is not None and len(ports) != 1:
            yield error("unix-needs-one-port", "address", "a Unix socket requires a service with exactly one port")
    elif entry.address:
        yield from _check_address(entry.address, names)
    elif not entry.network:
        yield error("missing-field", "address", "an address is required")
    else:
        yield warning(
            "missing-field", "address", f"without an address, the gateways of network {entry.network!r} are used"
        )
    yield from check_ports(entry, ports)
    yield from rules.check_labels("labels", entry.labels)


def _check_address(address: str, names: bool) -> Problems:
    if is_ip(address):
        return
    if not names:
        hint = "" if any(rules.check_name("", address)) else "; use resolution DNS for host names"
        yield bad_address(address, f"is not an IP address, as resolution STATIC requires{hint}")
    elif any(rules.check_name("address", address)):
        yield bad_address(address, "is neither an IP address nor a domain name")


def bad_address(address: str, fault: str) -> Problem:
    """Return the error of an address. If the address contains a port, the error says where to write it."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if colon and rules.is_number(port) and (is_ip(host) or not any(rules.check_name("", host))):
        fault = f"contains a port: write address {host} and the port below ports"
    return error("bad-address", "address", f"{address!r} {fault}")


def check_ports(entry: WorkloadEntry, ports: Collection[str] | None) -> Problems:
    for name, number in entry.ports.items():
        if ports is not None and name not in ports:
            yield error("unknown-port", f"ports[{name}]", "the ServiceEntry has no port with this name")
        yield from rules.check_port_name(f"ports[{name}]", name)
        yield from rules.check_port(f"ports[{name}]", number)


def validate_workload_group(o: Object[WorkloadGroup]) -> Problems:
    yield from below("spec", _validate_group(o.spec))


def _validate_group(group: WorkloadGroup) -> Problems:
    if group.template is None:
        yield error("missing-field", "template", "a template is required")
    if group.metadata is not None:
        yield from rules.check_labels("metadata.labels", group.metadata.labels)
    if group.probe is not None:
        yield from below("probe", _validate_probe(group.probe))


def _validate_probe(probe: ReadinessProbe) -> Problems:
    yield from rules.check_not_negative("periodSeconds", probe.period_seconds)
    yield from rules.check_not_negative("initialDelaySeconds", probe.initial_delay_seconds)
    yield from rules.check_not_negative("timeoutSeconds", probe.timeout_seconds)
    yield from rules.check_not_negative("successThreshold", probe.success_threshold)
    yield from rules.check_not_negative("failureThreshold", probe.failure_threshold)
    if probe.http_get is not None:
        yield from rules.check_port("httpGet.port", probe.http_get.port)
        if probe.http_get.scheme not in ("", "HTTP", "HTTPS"):
            yield error("bad-protocol", "httpGet.scheme", f"{probe.http_get.scheme!r}: expected HTTP or HTTPS")
        for index, header in enumerate(probe.http_get.http_headers):
            yield from check_strict_name(f"httpGet.httpHeaders[{index}].name", header.name)
    elif probe.tcp_socket is not None:
        yield from rules.check_port("tcpSocket.port", probe.tcp_socket.port)
    elif probe.grpc is not None:
        yield from rules.check_port("grpc.port", probe.grpc.port)
    elif probe.exec is None:
        yield error("missing-field", "", "one of httpGet, tcpSocket, exec and grpc is required")
    elif not probe.exec.command:
        yield error("missing-field", "exec.command", "a command is required")

"""Validation of ServiceEntries. Most rules depend on the resolution."""

from __future__ import annotations

from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.networking.workload_entry import WorkloadEntry
from pilot.config.object import Object
from pilot.config.problem import Problems, below, error, warning
from pilot.config.protocol import Protocol, parse_protocol
from pilot.config.validation import rules
from pilot.config.validation.expansion import check_service_entry, limited
from pilot.config.validation.traffic.workload import bad_address, check_ports, check_workload
from pilot.lib.addresses import is_ip
from pilot.lib.hosts import is_wildcard

_DYNAMIC = (Protocol.HTTP, Protocol.TLS, Protocol.GRPC, Protocol.HTTP2)


def validate_service_entry(o: Object[ServiceEntry]) -> Problems:
    yield from below("spec", limited(check_service_entry(o.spec), _validate(o.spec, o.namespace)))


def _validate(entry: ServiceEntry, namespace: str) -> Problems:
    yield from _check_hosts(entry)
    yield from _check_addresses(entry)
    yield from _check_ports(entry)
    if (selector := entry.workload_selector) is not None:
        yield from rules.check_selector("workloadSelector", selector.labels, "labels")
        if entry.endpoints:
            yield error("exclusive-fields", "endpoints", "only one of endpoints and workloadSelector may be set")
    match entry.resolution:
        case "NONE":
            yield from _validate_none(entry)
        case "STATIC":
            names = {port.name for port in entry.ports}
            for index, endpoint in enumerate(entry.endpoints):
                yield from below(f"endpoints[{index}]", check_workload(endpoint, names, names=False))
        case "DYNAMIC_DNS":
            yield from _validate_dynamic(entry)
        case _:
            yield from _validate_dns(entry)
    yield from rules.check_export_to("exportTo", entry.export_to, namespace, nobody=True)


def _check_hosts(entry: ServiceEntry) -> Problems:
    if not entry.hosts:
        yield error("missing-field", "hosts", "a host is required")
    for index, host in enumerate(entry.hosts):
        if host == "*":
            yield error("bad-host", f"hosts[{index}]", "'*' is not a valid host")
            continue
        yield from rules.check_host(f"hosts[{index}]", host)
        if entry.resolution != "DYNAMIC_DNS" and any(rules.check_no_partial_wildcard("", host)):
            yield warning("partial-wildcard", f"hosts[{index}]", f"{host!r}: a wildcard should be a whole label")


def _check_addresses(entry: ServiceEntry) -> Problems:
    for index, address in enumerate(entry.addresses):
        yield from rules.check_subnet(f"addresses[{index}]", address)
        if "/" in address and entry.resolution not in ("NONE", "STATIC"):
            yield error(
                "bad-address", f"addresses[{index}]", "CIDR ranges are supported only with resolution NONE and STATIC"
            )


def _check_ports(entry: ServiceEntry) -> Problems:
    names: set[str] = set()
    numbers: set[int] = set()
    for index, port in enumerate(entry.ports):
        place = f"ports[{index}]"
        if port.name in names:
            yield error("duplicate-name", f"{place}.name", f"duplicate {port.name!r}")
        if port.number in numbers:
            yield error("duplicate-port", f"{place}.number", f"duplicate {port.number}")
        names.add(port.name)
        numbers.add(port.number)
        yield from rules.check_port(f"{place}.number", port.number)
        yield from rules.check_port_name(f"{place}.name", port.name)
        yield from rules.check_protocol(f"{place}.protocol", port.protocol)
        if port.target_port:
            yield from rules.check_port(f"{place}.targetPort", port.target_port)
        protocol = parse_protocol(port.protocol)
        if entry.resolution != "NONE" and len(entry.hosts) > 1 and not (protocol.is_http or protocol.is_tls):
            yield error("hosts-need-http", f"{place}.protocol", "multiple hosts require HTTP or TLS")


def _validate_none(entry: ServiceEntry) -> Problems:
    if entry.endpoints:
        yield error("exclusive-fields", "endpoints", "not supported with resolution NONE")
    if entry.workload_selector is not None:
        yield warning("no-effect", "workloadSelector", "has no effect with resolution NONE")


def _validate_dns(entry: ServiceEntry) -> Problems:
    if not entry.endpoints:
        for index, host in enumerate(entry.hosts):
            if any(rules.check_name("", host)) and not any(rules.check_host("", host)):
                yield error(
                    "bad-host",
                    f"hosts[{index}]",
                    f"{host!r} cannot be resolved with resolution {entry.resolution}: write full domain names, or "
                    "resolution: NONE for hosts with a wildcard",
                )
    if entry.resolution == "DNS_ROUND_ROBIN" and len(entry.endpoints) > 1:
        yield error("too-many-endpoints", "endpoints", "at most one is supported with resolution DNS_ROUND_ROBIN")
    names = {port.name for port in entry.ports}
    for index, endpoint in enumerate(entry.endpoints):
        yield from below(f"endpoints[{index}]", _check_dns_endpoint(endpoint, names))


def _check_dns_endpoint(endpoint: WorkloadEntry, names: set[str]) -> Problems:
    if not is_ip(endpoint.address) and any(rules.check_name("", endpoint.address)):
        yield bad_address(endpoint.address, "is neither an IP address nor a domain name")
    yield from rules.check_labels("labels", endpoint.labels)
    yield from check_ports(endpoint, names)


def _validate_dynamic(entry: ServiceEntry) -> Problems:
    for index, host in enumerate(entry.hosts):
        if not is_wildcard(host):
            yield error("bad-host", f"hosts[{index}]", f"{host!r}: resolution DYNAMIC_DNS requires a wildcard")
    for field, value in (("addresses", entry.addresses), ("endpoints", entry.endpoints)):
        if value:
            yield error("exclusive-fields", field, f"{field} are not supported with resolution DYNAMIC_DNS")
    for index, port in enumerate(entry.ports):
        if parse_protocol(port.protocol) not in _DYNAMIC:
            yield error(
                "bad-protocol",
                f"ports[{index}].protocol",
                "resolution DYNAMIC_DNS supports only HTTP, HTTP2, GRPC and TLS",
            )

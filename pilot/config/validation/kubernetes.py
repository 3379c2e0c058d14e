"""Validation of the fields of Kubernetes objects that a mesh reads.

Objects from files need it, because no API server has validated them.
"""

from __future__ import annotations

from pilot.config.indexes import SERVICE_NAME_LABEL
from pilot.config.kubernetes.endpoint_slice import EndpointSlice, SliceEndpoint
from pilot.config.kubernetes.pod import Pod
from pilot.config.kubernetes.service import MAX_PORTS, Service, ServicePort
from pilot.config.object import Object
from pilot.config.problem import Problems, below, each, error, warning
from pilot.config.validation import rules

_TRANSPORTS = frozenset({"TCP", "UDP", "SCTP"})


def validate_service(o: Object[Service]) -> Problems:
    service = o.spec
    yield from each("spec.ports", service.ports, _validate_service_port)
    if len(service.ports) > MAX_PORTS:
        yield warning("too-many", "spec.ports", f"{len(service.ports)} ports; only the first {MAX_PORTS} are used")
    names = [port.name for port in service.ports]
    if len(names) > 1 and (not all(names) or len({*names}) < len(names)):
        yield error("duplicate-name", "spec.ports", "multiple ports must have unique names")
    if service.cluster_ip not in ("", "None"):
        yield from rules.check_address("spec.clusterIP", service.cluster_ip)
    for index, address in enumerate(service.cluster_ips):
        if service.cluster_ips != ("None",):
            yield from rules.check_address(f"spec.clusterIPs[{index}]", address)
    for index, address in enumerate(service.external_ips):
        yield from rules.check_address(f"spec.externalIPs[{index}]", address)
    if service.type == "ExternalName":
        yield from rules.check_name("spec.externalName", service.external_name)
    for index, ingress in enumerate(service.status.load_balancer.ingress):
        if ingress.ip:
            yield from rules.check_address(f"status.loadBalancer.ingress[{index}].ip", ingress.ip)


def _validate_service_port(port: ServicePort) -> Problems:
    yield from rules.check_port("port", port.port)
    if port.protocol not in _TRANSPORTS:
        yield error("bad-protocol", "protocol", f"{port.protocol!r}: expected TCP, UDP or SCTP")
    if isinstance(port.target_port, int):
        yield from rules.check_port("targetPort", port.target_port) if port.target_port else ()


def validate_pod(o: Object[Pod]) -> Problems:
    status = o.spec.status
    if status.pod_ip:
        yield from rules.check_address("status.podIP", status.pod_ip)
    for index, ip in enumerate(status.pod_ips):
        yield from rules.check_address(f"status.podIPs[{index}].ip", ip.ip)


def validate_endpoint_slice(o: Object[EndpointSlice]) -> Problems:
    endpoint_slice = o.spec
    if SERVICE_NAME_LABEL not in o.labels:
        text = f"without the label {SERVICE_NAME_LABEL}, the endpoints belong to no Service: set it to its name"
        yield warning("no-service", "metadata.labels", text)
    if endpoint_slice.address_type not in ("IPv4", "IPv6", "FQDN"):
        yield error("bad-enum", "addressType", f"{endpoint_slice.address_type!r}: expected IPv4, IPv6 or FQDN")
    elif endpoint_slice.address_type != "FQDN":
        yield from each("endpoints", endpoint_slice.endpoints, _validate_addresses)
    for index, port in enumerate(endpoint_slice.ports):
        if port.port is not None:
            yield from below(f"ports[{index}]", rules.check_port("port", port.port))


def _validate_addresses(endpoint: SliceEndpoint) -> Problems:
    for index, address in enumerate(endpoint.addresses):
        yield from rules.check_address(f"addresses[{index}]", address)

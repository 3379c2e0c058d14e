"""Services that ServiceEntries declare. There is one for each host."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Mapping

from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object
from pilot.config.protocol import parse_protocol
from pilot.lib.labels import CANONICAL_NAME, CANONICAL_REVISION, canonical_service
from pilot.mesh.model.service import Port, Registry, Resolution, Service
from pilot.mesh.model.visibility import limit_export, resolve_export_to
from pilot.mesh.registry.kubernetes_services import traffic_distribution
from pilot.mesh.registry.service_settings import ServiceRules

CONNECT_STRATEGY = "istio.io/connect-strategy"

_RESOLUTIONS = {
    "NONE": Resolution.PASSTHROUGH,
    "STATIC": Resolution.CLIENT_SIDE_LB,
    "DNS": Resolution.DNS_LB,
    "DNS_ROUND_ROBIN": Resolution.DNS_ROUND_ROBIN_LB,
    "DYNAMIC_DNS": Resolution.DYNAMIC_DNS,
}


def build_entry_service(
    entry: Object[ServiceEntry],
    host: str,
    auto_addresses: tuple[str, ...],
    namespace_labels: Mapping[str, str],
    namespace_annotations: Mapping[str, str],
    rules: ServiceRules,
) -> Service:
    """Return the service that a ServiceEntry declares for one of its hosts."""
    spec = entry.spec
    external = spec.location == "MESH_EXTERNAL"
    exported = resolve_export_to(spec.export_to, rules.export_to, entry.namespace)
    return Service(
        hostname=host,
        namespace=entry.namespace,
        name=host,
        registry=Registry.EXTERNAL,
        source=entry.key,
        ports=tuple(
            Port(port.name, port.number, parse_protocol(port.protocol), port.target_port or port.number)
            for port in spec.ports
        ),
        resolution=_RESOLUTIONS[spec.resolution],
        addresses=tuple(address for text in spec.addresses if (address := parse_address(text))),
        auto_addresses=auto_addresses,
        export_to=limit_export(exported, rules.entry_visibility, entry.namespace, namespace_labels),
        created=entry.created,
        labels=_labels(entry, external and rules.label_external),
        selector=tuple(sorted(spec.workload_selector.labels.items())) if spec.workload_selector else (),
        mesh_external=external,
        service_accounts=spec.subject_alt_names,
        traffic_distribution=traffic_distribution("", entry.annotations, namespace_annotations),
        race_connect=entry.annotations.get(CONNECT_STRATEGY, "").upper() == "RACE_FIRST_TCP_CONNECT",
        session_label=entry.labels.get(rules.session_label, ""),
        session_header_label=entry.labels.get(rules.session_header_label, ""),
    )


@functools.lru_cache(maxsize=4096)  # the services of all hosts of a ServiceEntry parse the same addresses
def parse_address(text: str) -> str:
    """Return an address of a ServiceEntry: an IP, or a CIDR with more than one address. Return "" if it is neither."""
    try:
        if "/" not in text:
            ipaddress.ip_address(text)
            return text
        network = ipaddress.ip_interface(text)
    except ValueError:
        return ""
    return str(network.ip) if network.network.prefixlen == network.max_prefixlen else text


def _labels(entry: Object[ServiceEntry], canonical: bool) -> tuple[tuple[str, str], ...]:
    labels = dict(entry.labels)
    if canonical and not (CANONICAL_NAME in labels and CANONICAL_REVISION in labels):
        labels[CANONICAL_NAME], labels[CANONICAL_REVISION] = canonical_service(labels, entry.name)
    return tuple(sorted(labels.items()))

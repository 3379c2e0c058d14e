"""Services that Kubernetes Services declare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilot.config.kubernetes.service import EXPORT_TO, ServicePort
from pilot.config.kubernetes.service import Service as KubernetesService
from pilot.config.object import Object
from pilot.config.protocol import port_protocol
from pilot.lib import spiffe
from pilot.mesh.model.service import Port, Registry, Resolution, Service
from pilot.mesh.model.visibility import resolve_export_to
from pilot.mesh.registry.service_settings import ServiceRules

HEADLESS = "None"
TRAFFIC_DISTRIBUTION = "networking.istio.io/traffic-distribution"
CANONICAL_ACCOUNTS = "alpha.istio.io/canonical-serviceaccounts"
KUBERNETES_ACCOUNTS = "alpha.istio.io/kubernetes-serviceaccounts"

_DISTRIBUTIONS = {
    "PreferClose": "PreferSameZone",
    "PreferSameZone": "PreferSameZone",
    "PreferSameNode": "PreferSameNode",
}
_DISTRIBUTIONS_ANY_CASE = {name.lower(): meaning for name, meaning in _DISTRIBUTIONS.items()}


def kubernetes_hostname(name: str, namespace: str, domain: str) -> str:
    """Return the DNS name of a Kubernetes Service."""
    return f"{name}.{namespace}.svc.{domain}"


def build_kubernetes_service(
    row: Object[KubernetesService],
    ports: Sequence[ServicePort],
    cluster: str,
    namespace_annotations: Mapping[str, str],
    rules: ServiceRules,
) -> Service:
    """Return the service that a Kubernetes Service in a cluster declares, with those of its ports that are used."""
    spec = row.spec
    external = spec.external_name if spec.type == "ExternalName" else ""
    if spec.cluster_ip == HEADLESS:
        resolution = Resolution.PASSTHROUGH
    else:
        resolution = Resolution.ALIAS if external else Resolution.CLIENT_SIDE_LB
    addresses = _addresses(spec)
    return Service(
        hostname=kubernetes_hostname(row.name, row.namespace, rules.domain),
        namespace=row.namespace,
        name=row.name,
        registry=Registry.KUBERNETES,
        source=row.key,
        ports=tuple(_port(port) for port in ports),
        resolution=resolution,
        addresses=addresses,
        cluster_addresses=((cluster, addresses),),
        export_to=resolve_export_to(exported_names(row), rules.export_to, row.namespace),
        created=row.created,
        labels=tuple(sorted(row.labels.items())),
        selector=tuple(sorted(spec.selector.items())),
        mesh_external=bool(external),
        external_name=external,
        service_accounts=_service_accounts(row, rules.trust_domain),
        publish_not_ready=spec.publish_not_ready_addresses,
        node_local=spec.internal_traffic_policy == "Local",
        traffic_distribution=traffic_distribution(spec.traffic_distribution, row.annotations, namespace_annotations),
        session_label=row.labels.get(rules.session_label, ""),
        session_header_label=row.labels.get(rules.session_header_label, ""),
    )


def merge_clusters(services: Sequence[Service]) -> Service:
    """Return the service that results from merging the declarations of a service in several clusters.

    It is the service in the first cluster, with the addresses and service accounts of all clusters.
    """
    first, *others = services
    if not others:
        return first
    return msgspec.structs.replace(
        first,
        cluster_addresses=tuple(item for service in services for item in service.cluster_addresses),
        service_accounts=tuple(dict.fromkeys(account for service in services for account in service.service_accounts)),
    )


def traffic_distribution(field: str, annotations: Mapping[str, str], namespace_annotations: Mapping[str, str]) -> str:
    """Return "", PreferSameZone or PreferSameNode.

    The field takes precedence over the Service's annotation, which takes precedence over the namespace's annotation.
    """
    if field in _DISTRIBUTIONS:
        return _DISTRIBUTIONS[field]
    annotation = annotations.get(TRAFFIC_DISTRIBUTION) or namespace_annotations.get(TRAFFIC_DISTRIBUTION) or ""
    return _DISTRIBUTIONS_ANY_CASE.get(annotation.lower(), "")


def exported_names(row: Object[KubernetesService]) -> tuple[str, ...]:
    """Return the items of a Service's exportTo annotation."""
    return _items(row, EXPORT_TO)


def _port(port: ServicePort) -> Port:
    target = port.target_port if port.target_port else port.port
    return Port(port.name, port.port, port_protocol(port.port, port.name, port.protocol, port.app_protocol), target)


def _addresses(spec: KubernetesService) -> tuple[str, ...]:
    if spec.cluster_ip in ("", HEADLESS):
        return ()
    return spec.cluster_ips if len(spec.cluster_ips) > 1 else (spec.cluster_ip,)


def _service_accounts(row: Object[KubernetesService], trust_domain: str) -> tuple[str, ...]:
    return (
        *_items(row, CANONICAL_ACCOUNTS),
        *(spiffe.identity(trust_domain, row.namespace, account) for account in _items(row, KUBERNETES_ACCOUNTS)),
    )


def _items(row: Object[Any], annotation: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in row.annotations.get(annotation, "").split(",") if item.strip())

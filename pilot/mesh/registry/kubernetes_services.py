"""Kubernetes Services as services of the mesh."""

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
    """Returns the DNS name of a Kubernetes Service."""
    return f"{name}.{namespace}.svc.{domain}"


def build_kubernetes_service(
    o: Object[KubernetesService], cluster: str, namespace_annotations: Mapping[str, str], rules: ServiceRules
) -> Service:
    """Returns the service that an object of a cluster declares there."""
    spec = o.spec
    external = spec.external_name if spec.type == "ExternalName" else ""
    if spec.cluster_ip == HEADLESS:
        resolution = Resolution.PASSTHROUGH
    else:
        resolution = Resolution.ALIAS if external else Resolution.CLIENT_SIDE_LB
    addresses = _addresses(spec)
    return Service(
        hostname=kubernetes_hostname(o.name, o.namespace, rules.domain),
        namespace=o.namespace,
        name=o.name,
        registry=Registry.KUBERNETES,
        source=o.key,
        ports=tuple(_port(p) for p in spec.ports),
        resolution=resolution,
        addresses=addresses,
        cluster_addresses=((cluster, addresses),),
        export_to=resolve_export_to(exported_names(o), rules.export_to, o.namespace),
        created=o.created,
        labels=tuple(sorted(o.labels.items())),
        selector=tuple(sorted(spec.selector.items())),
        mesh_external=bool(external),
        external_name=external,
        service_accounts=_service_accounts(o, rules.trust_domain),
        publish_not_ready=spec.publish_not_ready_addresses,
        node_local=spec.internal_traffic_policy == "Local",
        traffic_distribution=traffic_distribution(spec.traffic_distribution, o.annotations, namespace_annotations),
        session_label=o.labels.get(rules.session_label, ""),
        session_header_label=o.labels.get(rules.session_header_label, ""),
    )


def merge_clusters(declared: Sequence[Service]) -> Service:
    """Returns one service for what several clusters declare under one name: as the first has it, with every cluster's addresses, and the identities
    that run it in any of them."""
    first, *others = declared
    if not others:
        return first
    return msgspec.structs.replace(
        first,
        cluster_addresses=tuple(item for s in declared for item in s.cluster_addresses),
        service_accounts=tuple(dict.fromkeys(account for s in declared for account in s.service_accounts)),
    )


def traffic_distribution(field: str, annotations: Mapping[str, str], namespace_annotations: Mapping[str, str]) -> str:
    """Returns "", PreferSameZone or PreferSameNode, by the field, else the annotation of the object, else that of its namespace."""
    if field in _DISTRIBUTIONS:
        return _DISTRIBUTIONS[field]
    said = annotations.get(TRAFFIC_DISTRIBUTION) or namespace_annotations.get(TRAFFIC_DISTRIBUTION) or ""
    return _DISTRIBUTIONS_ANY_CASE.get(said.lower(), "")


def exported_names(o: Object[KubernetesService]) -> tuple[str, ...]:
    """Returns what the annotation of a Service says of whom it is exported to, () where it says nothing."""
    return _items(o, EXPORT_TO)


def _port(p: ServicePort) -> Port:
    target = p.target_port if p.target_port else p.port
    return Port(p.name, p.port, port_protocol(p.port, p.name, p.protocol, p.app_protocol), target)


def _addresses(spec: KubernetesService) -> tuple[str, ...]:
    if spec.cluster_ip in ("", HEADLESS):
        return ()
    return spec.cluster_ips if len(spec.cluster_ips) > 1 else (spec.cluster_ip,)


def _service_accounts(o: Object[KubernetesService], trust_domain: str) -> tuple[str, ...]:
    return (
        *_items(o, CANONICAL_ACCOUNTS),
        *(spiffe.identity(trust_domain, o.namespace, a) for a in _items(o, KUBERNETES_ACCOUNTS)),
    )


def _items(o: Object[Any], annotation: str) -> tuple[str, ...]:
    return tuple(i.strip() for i in o.annotations.get(annotation, "").split(",") if i.strip())

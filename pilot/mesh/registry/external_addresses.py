"""Addresses at which Kubernetes Services are reachable from outside their cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.kinds.kubernetes import NODE, SERVICE
from pilot.config.kubernetes.service import Service
from pilot.config.object import Object, RegistryKey
from pilot.derive import derived, hub
from pilot.mesh.tables.database import Mesh

NODE_SELECTOR = "traffic.istio.io/nodeSelector"


class ExternalAddress(NamedTuple):
    """An IP address or hostname, and a port."""

    address: str
    port: int


@derived
def external_addresses(db: Mesh, key: RegistryKey, port: int) -> tuple[ExternalAddress, ...]:
    """Return the external addresses of a Service port.

    They are the addresses of the load balancer and the external IPs. If there are none, they are the addresses of the
    nodes that an annotation selects.
    """
    row = SERVICE.get(db, key)
    if row is None:
        return ()
    if addresses := declared_external_addresses(row.spec):
        return tuple(ExternalAddress(address, port) for address in addresses)
    selector = node_selector(row)
    if selector is None:
        return ()
    node_port = next((p.node_port for p in row.spec.ports if p.port == port), port)
    return tuple(
        ExternalAddress(address, node_port) for labels, address in _nodes(db, key.cluster) if selector.items() <= labels
    )


def declared_external_addresses(spec: Service) -> tuple[str, ...]:
    """Return the external addresses in the Service itself: those of its load balancer, and its external IPs."""
    ingress = spec.status.load_balancer.ingress if spec.type == "LoadBalancer" else ()
    return (*(address for item in ingress if (address := item.ip or item.hostname)), *spec.external_ips)


def node_selector(service: Object[Service]) -> Mapping[str, str] | None:
    """Return the labels of the nodes through which a NodePort Service is reachable.

    Return None if the Service has another type, or no annotation that selects nodes.
    """
    text = service.annotations.get(NODE_SELECTOR)
    if text is None or service.spec.type != "NodePort":
        return None
    try:
        selector = json.loads(text)
    except ValueError:
        return {}
    return selector if isinstance(selector, dict) else {}


@hub
def _nodes(db: Mesh, cluster: str) -> tuple[tuple[frozenset[tuple[str, str]], str], ...]:
    """Return the labels and external IP of each node in a cluster, without the nodes that have no external IP."""
    nodes = []
    for key in NODE.keys(db, "cluster", cluster):
        row = NODE.get(db, key)
        address = (
            next((a.address for a in row.spec.status.addresses if a.type == "ExternalIP" and a.address), "")
            if row is not None
            else ""
        )
        if row is not None and address:
            nodes.append((frozenset(row.labels.items()), address))
    return tuple(nodes)

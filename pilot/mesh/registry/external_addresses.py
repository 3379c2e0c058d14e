"""The addresses at which Kubernetes Services are reached from outside of their cluster."""

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
    """An IP address or host name, and the port there."""

    address: str
    port: int


@derived
def external_addresses(db: Mesh, key: RegistryKey, port: int) -> tuple[ExternalAddress, ...]:
    """Returns the addresses of a Service for one of its ports: of its load balancer and its external IPs, else of the nodes that its annotation
    selects."""
    row = SERVICE.get(db, key)
    if row is None:
        return ()
    if own := own_addresses(row.spec):
        return tuple(ExternalAddress(a, port) for a in own)
    selector = node_selector(row)
    if selector is None:
        return ()
    mapped = next((p.node_port for p in row.spec.ports if p.port == port), port)
    return tuple(ExternalAddress(a, mapped) for labels, a in _nodes(db, key.cluster) if selector.items() <= labels)


def own_addresses(spec: Service) -> tuple[str, ...]:
    """Returns the outside addresses that the Service itself has."""
    ingress = spec.status.load_balancer.ingress if spec.type == "LoadBalancer" else ()
    return (*(a for i in ingress if (a := i.ip or i.hostname)), *spec.external_ips)


def node_selector(o: Object[Service]) -> Mapping[str, str] | None:
    """Returns the labels of the nodes whose addresses a NodePort Service is reached at; None where it is not marked as such."""
    text = o.annotations.get(NODE_SELECTOR)
    if text is None or o.spec.type != "NodePort":
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


@hub
def _nodes(db: Mesh, cluster: str) -> tuple[tuple[frozenset[tuple[str, str]], str], ...]:
    """Returns the labels and the external IP of each node of a cluster that has one."""
    found = []
    for key in NODE.keys(db, "cluster", cluster):
        row = NODE.get(db, key)
        address = (
            next((a.address for a in row.spec.status.addresses if a.type == "ExternalIP" and a.address), "")
            if row is not None
            else ""
        )
        if row is not None and address:
            found.append((frozenset(row.labels.items()), address))
    return tuple(found)

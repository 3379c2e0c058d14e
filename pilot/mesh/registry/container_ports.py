"""The ports that the containers of Pods, and of templates of Pods, declare."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilot.config.kinds.kubernetes import POD
from pilot.config.kubernetes.pod import Pod
from pilot.config.object import RegistryKey
from pilot.derive import Gather, derived
from pilot.mesh.registry.pod_templates import templates_in
from pilot.mesh.registry.pods import pods_in, running_containers
from pilot.mesh.tables.database import Mesh

_OF_PROXY = "http-envoy-prom"
"""The name of the port that injection adds."""


class DeclaredPort(NamedTuple):
    """A port that a container declares. `name` is "" if it has none."""

    number: int
    name: str
    protocol: str

    def __str__(self) -> str:
        return f"{self.number} ({self.name})" if self.name else str(self.number)


class PortsOfPod(NamedTuple):
    """The labels of a Pod, and the ports that its containers declare."""

    labels: frozenset[tuple[str, str]]
    ports: tuple[DeclaredPort, ...]


@derived
def _ports_of(db: Mesh, key: RegistryKey, _: str) -> PortsOfPod | None:
    row = POD.get(db, key)
    return _build(row.labels.items(), row.spec) if row is not None else None


def _build(labels: Iterable[tuple[str, str]], pod: Pod) -> PortsOfPod:
    ports = (port for container in running_containers(pod) for port in container.ports if port.name != _OF_PROXY)
    declared = dict.fromkeys(DeclaredPort(port.container_port, port.name, port.protocol) for port in ports)
    return PortsOfPod(frozenset(labels), tuple(declared))


_of_pods: Gather[RegistryKey, [str], PortsOfPod] = Gather("container_ports", pods_in, _ports_of)


@derived
def container_ports(db: Mesh, namespace: str) -> frozenset[PortsOfPod]:
    """Return the distinct ports of the Pods in a namespace, ready or not, and of the templates of Pods."""
    templates = (_build(row.labels.items(), row.spec) for row in templates_in(db, namespace))
    return frozenset((*_of_pods(db, namespace).values(), *templates))


def ports_of_selected(db: Mesh, namespace: str, labels: Iterable[tuple[str, str]]) -> Iterator[PortsOfPod]:
    """Yield the distinct ports of the Pods in a namespace that have all `labels`, in any order."""
    selector = frozenset(labels)
    return (pod for pod in container_ports(db, namespace) if selector <= pod.labels)

"""Checks the port names of Services, and Services that differ between clusters."""

from __future__ import annotations

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects
from pilot.cli.ctl.analyzers.analyzer import SERVICE, Analyzer, Reports, is_component
from pilot.config.problem import info, warning
from pilot.config.protocol import Protocol, port_protocol
from pilot.lib.labels import GATEWAY_MANAGED

_EXTERNAL_NAME = "ExternalName"
_LOCAL = "this cluster"


def _check_ports(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(SERVICE.id):
        if is_component(one) or GATEWAY_MANAGED in one.labels:
            continue
        is_external = one.value("spec", "type") == _EXTERNAL_NAME
        for index, port in enumerate(one.items("spec", "ports")):
            number, name, app_protocol = port.get("port"), str(port.get("name") or ""), port.get("appProtocol")
            protocol = port_protocol(
                number if isinstance(number, int) else 0,
                name,
                str(port.get("protocol") or "TCP"),
                app_protocol if isinstance(app_protocol, str) else None,
            )
            path = f"spec.ports[{index}].name"
            if is_external and (protocol is Protocol.UNSUPPORTED or name == "tcp"):
                text = "proxies may not forward TCP to the external name; name an application protocol"
                yield one, warning("external-name-port", path, text)
            elif protocol is Protocol.UNSUPPORTED:
                text = f"port {number} has the name {name!r}, which names no protocol, so proxies detect the protocol"
                yield one, info("protocol-detected", path, text)


def _check_clusters(objects: AnalyzedObjects) -> Reports:
    copies: dict[tuple[str, str], list[AnalyzedObject]] = {}
    for one in objects.of_every_cluster(SERVICE.id):
        copies.setdefault((one.namespace, one.name), []).append(one)
    for first, *others in copies.values():
        for other in others:
            if differences := list(_differences(first, other)):
                clusters = f"{first.cluster or _LOCAL} and {other.cluster}"
                text = f"the Service differs between {clusters}: {'; '.join(differences)}"
                yield first, warning("services-differ", "spec", text)


def _differences(one: AnalyzedObject, other: AnalyzedObject) -> list[str]:
    differences = []
    if (one.value("spec", "clusterIP") == "None") != (other.value("spec", "clusterIP") == "None"):
        differences.append("it is headless in only one of them")
    if _type(one) != _type(other):
        differences.append(f"its type is {_type(one)} and {_type(other)}")
    if _ports(one) != _ports(other):
        differences.append("its ports differ")
    return differences


def _type(one: AnalyzedObject) -> str:
    return str(one.value("spec", "type") or "ClusterIP")


def _ports(one: AnalyzedObject) -> list[tuple[str, ...]]:
    """Return the ports, sorted by name. Node ports, which API servers allocate, are left out."""
    return sorted(
        (
            str(port.get("name") or ""),
            str(port.get("port")),
            str(port.get("protocol") or "TCP"),
            str(port.get("targetPort") or port.get("port")),
            str(port.get("appProtocol") or ""),
        )
        for port in one.items("spec", "ports")
    )


PORT_NAMES = Analyzer("service.PortNameAnalyzer", (SERVICE,), _check_ports)
MULTICLUSTER_SERVICES = Analyzer("services.MultiClusterServiceAnalyzer", (SERVICE,), _check_clusters)

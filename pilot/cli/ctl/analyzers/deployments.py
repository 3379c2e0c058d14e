"""Checks the Services of Deployments, and the users that applications run as."""

from __future__ import annotations

from collections.abc import Iterable

from pilot.cli.ctl.analyzers.analyzed_objects import AnalyzedObject, AnalyzedObjects, Plain, mapping, mappings, texts
from pilot.cli.ctl.analyzers.analyzer import (
    DEPLOYMENT,
    INJECT,
    INJECTION,
    NAMESPACE,
    POD,
    PROXY,
    SERVICE,
    Analyzer,
    Reports,
    is_component,
)
from pilot.config.problem import Problems, warning
from pilot.lib.labels import GATEWAY_MANAGED, MESH_CONTROLLER

PROXY_USER = 1337
"""The user that proxies run as. Traffic of this user is not captured."""


def _check_services(objects: AnalyzedObjects) -> Reports:
    for one in objects.of(DEPLOYMENT.id):
        if one.labels.get(GATEWAY_MANAGED) == MESH_CONTROLLER or not _is_in_mesh(objects, one):
            continue
        labels = texts(one.value("spec", "template", "metadata", "labels"))
        selecting = [
            service
            for service in objects.by_namespace(SERVICE.id, one.namespace)
            if (selector := texts(service.value("spec", "selector"))) and selector.items() <= labels.items()
        ]
        for problem in _check_ports(selecting):
            yield one, problem


def _is_in_mesh(objects: AnalyzedObjects, one: AnalyzedObject) -> bool:
    """Return whether the Pods of a Deployment have a proxy."""
    template = one.part("spec", "template")
    containers = mappings(mapping(template.get("spec")).get("containers"))
    if any(container.get("name") == PROXY and container.get("image") for container in containers):
        return True
    metadata = mapping(template.get("metadata"))
    for wishes in (texts(metadata.get("labels")), texts(metadata.get("annotations"))):
        if INJECT in wishes:
            return wishes[INJECT] == "true"
    namespace = objects.get(NAMESPACE.id, "", one.namespace)
    return namespace is not None and namespace.labels.get(INJECTION) == "enabled"


def _check_ports(services: Iterable[AnalyzedObject]) -> Problems:
    protocols: dict[object, dict[str, set[str]]] = {}
    ports: dict[str, dict[object, str]] = {}
    for service in services:
        for port in service.items("spec", "ports"):
            number = port.get("port")
            protocol = str(port.get("protocol") or "TCP")
            protocols.setdefault(number, {}).setdefault(protocol, set()).add(service.name)
            ports.setdefault(str(port.get("targetPort") or number), {})[number] = service.name
    for number, by_protocol in protocols.items():
        if len(by_protocol) > 1:
            names = sorted({name for users in by_protocol.values() for name in users})
            text = f"the Services {', '.join(names)} use port {number} with {' and '.join(sorted(by_protocol))}"
            yield warning("service-protocols-differ", "spec.template.metadata.labels", text)
    for target, by_number in ports.items():
        if len(by_number) > 1:
            uses = ", ".join(f"{name} as port {number}" for number, name in sorted(by_number.items(), key=str))
            text = f"Services expose the target port {target} as different ports: {uses}"
            yield warning("service-ports-differ", "spec.template.metadata.labels", text)


def _check_users(objects: AnalyzedObjects) -> Reports:
    for kind, path in ((POD, ("spec",)), (DEPLOYMENT, ("spec", "template", "spec"))):
        for one in objects.of(kind.id):
            if not is_component(one):
                place = ".".join(path)
                for field in _reserved_users(one.part(*path)):
                    text = f"user {PROXY_USER} is reserved for the proxy; its traffic is not captured"
                    yield one, warning("reserved-user", f"{place}.{field}", text)


def _reserved_users(spec: Plain) -> Iterable[str]:
    """Yield the fields of a Pod's spec that set the proxy's user for an application."""
    containers = mappings(spec.get("containers"))
    is_gateway = bool(containers) and all(container.get("name") == PROXY for container in containers)
    if mapping(spec.get("securityContext")).get("runAsUser") == PROXY_USER and not is_gateway:
        yield "securityContext.runAsUser"
    for index, container in enumerate(containers):
        user = mapping(container.get("securityContext")).get("runAsUser")
        if container.get("name") != PROXY and user == PROXY_USER:
            yield f"containers[{index}].securityContext.runAsUser"


SERVICES_OF_DEPLOYMENTS = Analyzer("deployment.MultiServiceAnalyzer", (SERVICE, DEPLOYMENT, NAMESPACE), _check_services)
APPLICATION_USERS = Analyzer("applicationUID.Analyzer", (POD, DEPLOYMENT), _check_users)

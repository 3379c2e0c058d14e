"""Checks that the namespaces in the exportTo of Kubernetes Services and their named target ports exist, that no
ExternalName is a circular alias, and that a namespace does not have too many Services and ports."""

from __future__ import annotations

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.kubernetes.service import EXPORT_TO, FREE_PORTS, MAX_PORTS, Service, ServicePort
from pilot.config.object import Object, RegistryKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import derived
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.export_to import check_export_to
from pilot.mesh.registry.aliases import is_circular_alias
from pilot.mesh.registry.container_ports import ports_of_selected
from pilot.mesh.registry.excess_services import excess_services, used_ports
from pilot.mesh.registry.kubernetes_services import exported_names, kubernetes_hostname
from pilot.mesh.registry.selected_workloads import excess_selectors
from pilot.mesh.registry.workload_entries import entry_namespaces
from pilot.mesh.tables.database import Mesh

_INDEXES = ("external", "exported", "named_target")
_MAX_LISTED = 5
"""Maximum number of container ports that a problem lists."""


@derived
def _keys(db: Mesh) -> tuple[RegistryKey, ...]:
    checked = (key for index in _INDEXES for key in SERVICE.keys(db, index, True))
    limited: list[RegistryKey] = []
    for namespace in SERVICE.buckets(db, "namespace"):
        limited += excess_services(db, namespace).ignored
        limited += excess_services(db, namespace).shortened
    for namespace in entry_namespaces(db):
        if excess := excess_selectors(db, namespace):
            limited += [key for key in SERVICE.keys(db, "namespace", namespace) if key.object in excess]
    return tuple(dict.fromkeys((*checked, *limited)))


@derived
def service_problems(db: Mesh, key: RegistryKey) -> tuple[Problem, ...]:
    """Return the problems between a Kubernetes Service and other objects."""
    kubernetes_service = SERVICE.get(db, key)
    return attribute(kubernetes_service, _check(db, key, kubernetes_service)) if kubernetes_service is not None else ()


SERVICES = Check("Service", _keys, service_problems)


def _check(db: Mesh, key: RegistryKey, o: Object[Service]) -> Problems:
    for problem in check_export_to(db, exported_names(o)):
        yield from below(f"metadata.annotations[{EXPORT_TO}]", (problem,))
    if key in excess_services(db, key.namespace).ignored:
        limit, ports = db.settings.registry.max_services, min(len(o.spec.ports), MAX_PORTS)
        yield warning(
            "too-many",
            "metadata.name",
            f"namespace {o.namespace} has more than {limit} Services and ports of Services (PILOT_MAX_SERVICES); this "
            f"Service, with {ports} port{'s' * (ports != 1)}, is ignored because older ones take precedence",
        )
        return
    if len(used := used_ports(db, key, o)) < len(o.spec.first_ports):
        yield warning(
            "too-many",
            "spec.ports",
            f"the Services of namespace {o.namespace} have more than {db.settings.registry.max_service_ports} ports "
            f"(PILOT_MAX_SERVICE_PORTS), not counting {FREE_PORTS} of each; only the first {len(used)} of the "
            f"{len(o.spec.ports)} ports of this one are used, because older Services take precedence",
        )
    if o.key in excess_selectors(db, o.namespace):
        yield warning(
            "too-many",
            "spec.selector",
            f"the Services of namespace {o.namespace} have more than {db.settings.registry.max_entry_endpoints} "
            f"endpoints at WorkloadEntries (PILOT_MAX_SERVICE_ENTRY_ENDPOINTS); this one selects only Pods, because "
            "older Services take precedence; select fewer WorkloadEntries",
        )
    yield from below("spec", _check_targets(db, o))
    if o.spec.type == "ExternalName" and is_circular_alias(
        db, kubernetes_hostname(o.name, o.namespace, db.settings.registry.domain)
    ):
        yield warning(
            "alias-circle",
            "spec.externalName",
            f"{o.spec.external_name} is part of a cycle of aliases, so it resolves to nothing",
        )


def _check_targets(db: Mesh, o: Object[Service]) -> Problems:
    """Yield a problem for each target port whose name no container of the selected Pods has."""
    for index, port in enumerate(o.spec.first_ports):
        name = port.target_port
        if isinstance(name, str) and lacks_port(db, o, port):
            pods = ports_of_selected(db, o.namespace, o.spec.selector.items())
            ports = sorted({one for pod in pods for one in pod.ports if one.protocol == port.protocol})
            listed = f"their ports are {', '.join(map(str, ports[:_MAX_LISTED]))}: write one of them"
            yield warning(
                "target-port-not-found",
                f"ports[{index}].targetPort",
                f"no container of the Pods that the Service selects has a port named {name}, so requests get 503; "
                f"{listed if ports else 'they declare no ports: write the number of the port'}, "
                f"or name a port of the container {name}",
            )


def lacks_port(db: Mesh, o: Object[Service], port: ServicePort) -> bool:
    """Return whether a Service selects Pods, and no container of them has the name of a target port."""
    if not isinstance(port.target_port, str) or not o.spec.selector:
        return False
    name, is_selecting = (port.target_port, port.protocol), False
    for pod in ports_of_selected(db, o.namespace, o.spec.selector.items()):
        is_selecting = True
        if any((one.name, one.protocol) == name for one in pod.ports):
            return False
    return is_selecting

"""Checks that ServiceEntries have endpoints and select workloads, and that no object that takes precedence declares
their hosts."""

from __future__ import annotations

from pilot.config.kinds.istio import SERVICE_ENTRY, VIRTUAL_SERVICE
from pilot.config.networking.service_entry import CLUSTER_ENDPOINTS, ServiceEntry
from pilot.config.object import Object, ObjectKey, age
from pilot.config.problem import Problem, Problems, below, warning
from pilot.config.protocol import parse_protocol
from pilot.derive import derived
from pilot.lib.hosts import is_wildcard
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.destination import services_named
from pilot.mesh.analysis.export_to import check_export_to
from pilot.mesh.analysis.selector import check_selector
from pilot.mesh.model.service import Registry, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.excess_entries import expanded_endpoints, is_ignored
from pilot.mesh.registry.services import service, unmerged_entries
from pilot.mesh.tables.database import Mesh


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def service_entry_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a ServiceEntry and other objects."""
    entry = SERVICE_ENTRY.get(db, key)
    return attribute(entry, below("spec", _check(db, entry))) if entry is not None else ()


_MAX_OTHERS = 100
"""Maximum number of ServiceEntries for the hosts of one that are compared with it."""
_MAX_HOSTS, _MAX_PORTS = 10, 10
"""Maximum numbers of hosts, and of ports of each, for which the endpoints of a ServiceEntry without any are sought."""
SERVICE_ENTRIES = Check("ServiceEntry", _keys, service_entry_problems)


def _check(db: Mesh, o: Object[ServiceEntry]) -> Problems:
    if o.spec.workload_selector is not None:
        yield from below("workloadSelector", check_selector(db, o.namespace, o.spec.workload_selector.labels))
    yield from below("exportTo", check_export_to(db, o.spec.export_to))
    if is_ignored(db, o.key):
        yield warning(
            "too-large",
            "hosts",
            f"the ServiceEntries of namespace {o.namespace} expand to more than "
            f"{db.settings.registry.max_entry_endpoints} endpoints (PILOT_MAX_SERVICE_ENTRY_ENDPOINTS), where a "
            f"cluster for a host and port counts as {CLUSTER_ENDPOINTS}; this one, with "
            f"{expanded_endpoints(db, o)}, is ignored because older ones take precedence; "
            "list fewer hosts, ports, addresses or endpoints, or select fewer workloads",
        )
        return
    for index, host in enumerate(o.spec.hosts):
        ref = ServiceRef(host, o.namespace)
        served = service(db, ref)
        if served is not None and served.registry is Registry.KUBERNETES:
            yield warning(
                "host-claimed",
                f"hosts[{index}]",
                f"{host} is the host name of Service {o.namespace}/{served.name}, which takes precedence",
            )
        elif o.key in unmerged_entries(db, ref):
            yield warning(
                "host-claimed",
                f"hosts[{index}]",
                f"an older ServiceEntry in the namespace declares {host} with different settings and takes precedence",
            )
    yield from _check_protocols(db, o)
    yield from _check_endpoints(db, o)


def _check_endpoints(db: Mesh, o: Object[ServiceEntry]) -> Problems:
    """Yield a problem if resolution is STATIC and a host has no endpoints, neither here nor in another object.

    A host that a VirtualService routes needs none, because its requests may have other destinations.
    """
    spec = o.spec
    if spec.resolution != "STATIC" or spec.endpoints or spec.workload_selector is not None:
        return
    for host in spec.hosts[:_MAX_HOSTS]:
        if VIRTUAL_SERVICE.keys(db, "host", host.lower()) or _has_endpoints(db, host):
            continue
        protocols = [parse_protocol(port.protocol) for port in spec.ports]
        effect = f"requests to {host} get 503"
        if not any(protocol.is_http for protocol in protocols):
            effect = f"connections to {host} are closed"
        fix = "NONE to use the addresses that clients ask for" if is_wildcard(host) else "DNS for an external host"
        text = (
            f"resolution STATIC needs endpoints, and there are none, so {effect}; list endpoints or set a "
            f"workloadSelector, or write resolution: {fix}"
        )
        yield warning("host-without-endpoints", "resolution", text)
        return


def _has_endpoints(db: Mesh, host: str) -> bool:
    ports = ((s.ref, port.number) for s in services_named(db, host) for port in s.ports[:_MAX_PORTS])
    return any(endpoints(db, ref, number) for ref, number in ports)


def _check_protocols(db: Mesh, o: Object[ServiceEntry]) -> Problems:
    """Yield a problem for each port that an older ServiceEntry declares for the same host with another protocol.

    Clients of several namespaces may see both, and take the protocol of one of them.
    """
    others = {key for host in o.spec.hosts for key in SERVICE_ENTRY.keys(db, "host", host.lower()) if key != o.key}
    own = {port.number: port.protocol.upper() for port in o.spec.ports}
    conflicts: dict[int, str] = {}
    for row in filter(None, (SERVICE_ENTRY.get(db, key) for key in sorted(others)[:_MAX_OTHERS])):
        if age(row) > age(o) or is_ignored(db, row.key):
            continue
        declared = {port.number: port.protocol.upper() for port in row.spec.ports}
        differing = [number for number, protocol in declared.items() if own.get(number, protocol) != protocol]
        if differing:
            hosts = {host.lower() for host in row.spec.hosts}
            host = next(host for host in o.spec.hosts if host.lower() in hosts)
            for number in differing:
                text = f"declares port {number} of {host} as {declared[number]}"
                conflicts.setdefault(number, f"the older ServiceEntry {row.namespace}/{row.name} {text}")
    for index, port in enumerate(o.spec.ports):
        if port.number in conflicts:
            yield warning("protocol-conflict", f"ports[{index}].protocol", conflicts[port.number])

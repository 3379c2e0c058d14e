"""Checks that the workloads, imported hosts and egress proxies of Sidecars exist, and that Sidecars do not overlap."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from msgspec.structs import replace

from pilot.config.kinds.istio import SIDECAR
from pilot.config.networking.sidecar import Sidecar
from pilot.config.object import Object, ObjectKey
from pilot.config.problem import Problem, Problems, below, warning
from pilot.derive import Steps, derived, derived_in_steps
from pilot.lib.hosts import OverlappingHosts, full_name, is_wildcard
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.destination import check_destination
from pilot.mesh.analysis.overlap import Selecting, find_overlaps
from pilot.mesh.analysis.selector import check_selector, label_sets
from pilot.mesh.registry.services import is_visible, refs_by_hostname, refs_in_namespace, service_refs
from pilot.mesh.scope.egress_hosts import ANY_NAMESPACE
from pilot.mesh.scope.sidecar_scope import sidecar_order
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace
from pilot.mesh.traffic.virtual_services import bindings_by_viewer, bindings_in


@derived
def _keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return SIDECAR.all_keys(db)


@derived
def sidecar_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a Sidecar and other objects."""
    sidecar = SIDECAR.get(db, key)
    return attribute(sidecar, below("spec", _check(db, sidecar))) if sidecar is not None else ()


_MAX_NAMES = 20
"""Maximum number of services for which a check finds out whether they are visible. If a wildcard matches more, one of
them is assumed to be visible."""
SIDECARS = Check("Sidecar", _keys, sidecar_problems)


def _check(db: Mesh, o: Object[Sidecar]) -> Problems:
    spec = o.spec
    if spec.workload_selector is not None:
        yield from below("workloadSelector", check_selector(db, o.namespace, spec.workload_selector.labels))
    yield from _check_others(db, o)
    for e, listener in enumerate(spec.egress):
        for h, host in enumerate(listener.hosts):
            if not _imports_something(db, o.namespace, host):
                yield warning(
                    "host-not-found", f"egress[{e}].hosts[{h}]", f"{host} matches no service and no VirtualService"
                )
    policy = spec.outbound_traffic_policy
    if policy is not None and policy.egress_proxy is not None:
        to = replace(
            policy.egress_proxy, host=full_name(policy.egress_proxy.host, o.namespace, db.settings.registry.domain)
        )
        yield from below("outboundTrafficPolicy.egressProxy", check_destination(db, to, (o.namespace,)))


def _check_others(db: Mesh, o: Object[Sidecar]) -> Problems:
    """Yield a problem for each Sidecar in the namespace that takes precedence for some or all of this Sidecar's
    workloads."""
    if o.spec.workload_selector is None:
        first = next(iter(_sidecars_of_all_workloads(db, o.namespace)))
        if first != o.key:
            yield warning(
                "default-sidecar-shadowed",
                "workloadSelector",
                f"Sidecar {first.namespace}/{first.name} already applies to all workloads",
            )
        return
    for other in _earlier_sidecars(db, o.key):
        yield warning(
            "sidecar-shadowed",
            "workloadSelector",
            f"Sidecar {other.namespace}/{other.name} already applies to some of its workloads",
        )


@derived
def _sidecars_of_all_workloads(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the Sidecars of a namespace that have no selector, in order of precedence."""
    rows = ((key, SIDECAR.get(db, key)) for key in sidecar_order(db, namespace))
    return tuple(key for key, row in rows if row is not None and row.spec.workload_selector is None)


@derived
def _earlier_sidecars(db: Mesh, key: ObjectKey) -> tuple[ObjectKey, ...]:
    """Return the Sidecars that take precedence over a Sidecar for some of the workloads that it selects."""
    return _overlaps(db, key.namespace).get(key, ())


@derived_in_steps
def _overlaps(db: Mesh, namespace: str) -> Steps[Mapping[ObjectKey, tuple[ObjectKey, ...]]]:
    rows = ((key, SIDECAR.get(db, key)) for key in sidecar_order(db, namespace))
    selecting = (
        Selecting(key, frozenset(row.spec.workload_selector.labels.items()))
        for key, row in rows
        if row is not None and row.spec.workload_selector is not None
    )
    return (yield from find_overlaps(selecting, label_sets(db, namespace)))


def _imports_something(db: Mesh, own: str, text: str) -> bool:
    """Return whether an egress host matches a service or a VirtualService.

    Exclusions, `*/*` and `./*` need not match anything, so the result is always true for them.
    """
    where, _, host = text.partition("/")
    if where.startswith("~") or (where in (ANY_NAMESPACE, ".") and host == "*"):
        return True
    if where == ".":
        if own == root_namespace(db):
            return True  # in the root namespace, "." is the namespace of the proxy
        where = own
    names = (
        tuple(itertools.islice(_service_hosts(db, where).covered_by(host), _MAX_NAMES))
        if is_wildcard(host)
        else (host,)
    )
    refs = (r for name in names for r in refs_by_hostname(db, name) if where in (ANY_NAMESPACE, r.namespace))
    return (
        len(names) == _MAX_NAMES or any(is_visible(db, r, own) for r in refs) or _bound_hosts(db, where).overlap(host)
    )


@derived
def _service_hosts(db: Mesh, namespace: str) -> OverlappingHosts:
    """Return the hostnames of the services in a namespace, or in all namespaces for `*`."""
    refs = service_refs(db) if namespace == ANY_NAMESPACE else refs_in_namespace(db, namespace)
    return OverlappingHosts(r.hostname for r in refs)


@derived
def _bound_hosts(db: Mesh, namespace: str) -> OverlappingHosts:
    """Return the hosts of the VirtualServices in a namespace, or of the public ones in all namespaces for `*`."""
    if namespace == ANY_NAMESPACE:
        bound = itertools.chain.from_iterable(bindings_by_viewer(db).public.values())
        return OverlappingHosts(h for b in bound for h in b.hosts)
    return OverlappingHosts(h for b in bindings_in(db, namespace) for h in b.hosts)

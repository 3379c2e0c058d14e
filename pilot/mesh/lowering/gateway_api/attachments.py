"""Where a route attaches: every listener that one of its references may mean, and why it is not taken where it is not."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.lib.hosts import is_wildcard, matches, subset_of
from pilot.mesh.gateway_api.gateways import OwnerKey
from pilot.mesh.lowering.gateway_api.parents import PARENTS, THE_MESH, Parent, parents_of
from pilot.mesh.lowering.gateway_api.route_objects import RouteKey, route_binding
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh


class Denial(enum.StrEnum):
    """Why a route is not taken, by the words of the specification, what says most first."""

    NOT_ALLOWED = "NotAllowedByListeners"
    NO_HOSTNAME = "NoMatchingListenerHostname"
    NO_PARENT = "NoMatchingParent"


class ListenerAttachment(msgspec.Struct, frozen=True):
    """A reference of a route to one listener, or to the mesh. `rivals`: hostnames of other listeners of the same port and protocol, which
    take requests that they match closer. `target`: what the reference names."""

    ref: ParentReference
    kind: GroupKind
    target: ObjectKey
    parent: Parent
    denied: Fault | None = None
    rivals: tuple[str, ...] = ()

    @property
    def is_mesh(self) -> bool:
        return self.parent is THE_MESH or self.parent == THE_MESH

    def takes(self, host: str) -> bool:
        """Returns whether requests for a host of the route come to this listener, and not to one that is closer to it."""
        own = self.parent.hostname
        if own and not is_wildcard(own):
            return True
        if own and not matches(host, own):
            return False
        return not any(len(rival) >= len(own) and subset_of(host, rival) for rival in self.rivals if rival)


@derived
def attachments(db: Mesh, route: RouteKey) -> tuple[ListenerAttachment, ...]:
    """Returns where a route attaches, in the order of its references as text. References to what is not of this control plane give none."""
    binding = route_binding(db, route)
    if binding is None:
        return ()
    found: list[tuple[str, ListenerAttachment]] = []
    for ref in binding.parent_refs:
        kind = GroupKind(ref.group, ref.kind)
        if kind in PARENTS:
            target = ObjectKey(ref.namespace or route.namespace, ref.name)
            text = f"{ref.group}/{ref.kind}/{ref.name}/{ref.section_name or ''}/{ref.port or 0}.{target.namespace}"
            found += ((text, one) for one in _attach(db, route, ref, kind, target, binding.hostnames))
    return tuple(one for _, one in sorted(found, key=lambda pair: pair[0]))


def _attach(
    db: Mesh, route: RouteKey, ref: ParentReference, kind: GroupKind, target: ObjectKey, hostnames: tuple[str, ...]
) -> Iterable[ListenerAttachment]:
    if kind in (SERVICE.id, SERVICE_ENTRY.id):
        yield ListenerAttachment(ref, kind, target, THE_MESH, _absent(db, kind, target))
        return
    parents = parents_of(db, OwnerKey(kind, target))
    for parent in parents:
        beside = (p for p in parents if p is not parent and (p.port, p.protocol) == (parent.port, parent.protocol))
        rivals = tuple(sorted({p.hostname for p in beside} - {parent.hostname}))
        yield ListenerAttachment(ref, kind, target, parent, deny(parent, route, ref, hostnames), rivals)


def _absent(db: Mesh, kind: GroupKind, target: ObjectKey) -> Fault | None:
    if kind == SERVICE.id:
        found = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, *target)) is not None
        return None if found else Fault(Denial.NO_PARENT, f'parent service: "{target.name}" not found')
    return (
        None
        if SERVICE_ENTRY.get(db, target) is not None
        else Fault(Denial.NO_PARENT, f'parent service entry: "{target.name}" not found')
    )


def deny(parent: Parent, route: RouteKey, ref: ParentReference, hostnames: tuple[str, ...]) -> Fault | None:
    """Returns why a listener does not take a route; None where it does."""
    if ref.port and ref.port != parent.port:
        return Fault(Denial.NO_PARENT, f"port {ref.port} not found")
    if ref.section_name and ref.section_name != parent.section:
        return Fault(Denial.NO_PARENT, f'sectionName "{ref.section_name}" not found')
    if parent.hosts and (fault := _deny_hosts(parent, route.namespace, hostnames or ("*",))):
        return fault
    if route.kind not in parent.kinds:
        return Fault(Denial.NOT_ALLOWED, f"kind {route.kind} is not allowed")
    return None


def _deny_hosts(parent: Parent, namespace: str, hostnames: tuple[str, ...]) -> Fault | None:
    """Returns why no host of a route is one of the listener's for its namespace."""
    matched = False
    for limit, _, host in (h.rpartition("/") for h in parent.hosts):
        if any(matches(host, name) for name in hostnames):
            if limit in ("", "*", namespace):
                return None
            matched = True
    if matched:
        message = f'hostnames matched parent hostname "{parent.hostname}", but namespace "{namespace}" is not allowed by the parent'
        return Fault(Denial.NOT_ALLOWED, message)
    return Fault(Denial.NO_HOSTNAME, f'no hostnames matched parent hostname "{parent.hostname}"')

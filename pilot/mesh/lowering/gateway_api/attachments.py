"""Attachments of routes to listeners, and the reasons why listeners reject routes."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

import msgspec

from pilot.config.gateway_api.reference import ParentReference
from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.lib.hosts import is_wildcard, matches, subset_of
from pilot.lib.suggestion import choices
from pilot.mesh.gateway_api.gateways import OwnerKey
from pilot.mesh.lowering.gateway_api.parents import MESH_PARENT, PARENTS, Parent, parents_of
from pilot.mesh.lowering.gateway_api.routes import RouteKey, route_binding
from pilot.mesh.model.condition import Fault
from pilot.mesh.tables.database import Mesh


class RejectionReason(enum.StrEnum):
    """Reasons why a listener rejects a route, as defined by the specification. The most specific reason is first."""

    NOT_ALLOWED = "NotAllowedByListeners"
    NO_HOSTNAME = "NoMatchingListenerHostname"
    NO_PARENT = "NoMatchingParent"


class ListenerAttachment(msgspec.Struct, frozen=True):
    """A parent reference of a route, resolved to one listener or to the mesh.

    `target` is the referenced object. `sibling_hostnames` are the hostnames of other listeners with the same port and
    protocol. A sibling receives the requests that its hostname matches more specifically.
    """

    ref: ParentReference
    kind: GroupKind
    target: ObjectKey
    parent: Parent
    rejection: Fault | None = None
    sibling_hostnames: tuple[str, ...] = ()

    @property
    def is_mesh(self) -> bool:
        return self.parent is MESH_PARENT or self.parent == MESH_PARENT

    def accepts_host(self, host: str) -> bool:
        """Return True if this listener receives requests for a host of the route, and no sibling matches the host more
        closely."""
        hostname = self.parent.hostname
        if hostname and not is_wildcard(hostname):
            return True
        if hostname and not matches(host, hostname):
            return False
        return not any(
            len(rival) >= len(hostname) and subset_of(host, rival) for rival in self.sibling_hostnames if rival
        )


@derived
def attachments(db: Mesh, route: RouteKey) -> tuple[ListenerAttachment, ...]:
    """Return the attachments of a route, sorted by parent reference as a string.

    References to kinds that cannot be parents are omitted, as are references to Gateways of other control planes.
    """
    binding = route_binding(db, route)
    if binding is None:
        return ()
    by_reference: list[tuple[str, ListenerAttachment]] = []
    for ref in binding.parent_refs:
        kind = GroupKind(ref.group, ref.kind)
        if kind in PARENTS:
            target = ObjectKey(ref.namespace or route.namespace, ref.name)
            text = f"{ref.group}/{ref.kind}/{ref.name}/{ref.section_name or ''}/{ref.port or 0}.{target.namespace}"
            by_reference += (
                (text, attachment) for attachment in _attach(db, route, ref, kind, target, binding.hostnames)
            )
    return tuple(attachment for _, attachment in sorted(by_reference, key=lambda pair: pair[0]))


def _attach(
    db: Mesh, route: RouteKey, ref: ParentReference, kind: GroupKind, target: ObjectKey, hostnames: tuple[str, ...]
) -> Iterable[ListenerAttachment]:
    if kind in (SERVICE.id, SERVICE_ENTRY.id):
        yield ListenerAttachment(ref, kind, target, MESH_PARENT, _absent(db, kind, target))
        return
    parents = parents_of(db, OwnerKey(kind, target))
    sections = [parent.section for parent in parents] if ref.section_name else []
    for parent in parents:
        others = (
            other
            for other in parents
            if other is not parent and (other.port, other.protocol) == (parent.port, parent.protocol)
        )
        sibling_hostnames = tuple(sorted({other.hostname for other in others} - {parent.hostname}))
        yield ListenerAttachment(
            ref, kind, target, parent, find_rejection(parent, route, ref, hostnames, sections), sibling_hostnames
        )


def _absent(db: Mesh, kind: GroupKind, target: ObjectKey) -> Fault | None:
    if kind == SERVICE.id:
        exists = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, *target)) is not None
        return None if exists else Fault(RejectionReason.NO_PARENT, f'parent service: "{target.name}" not found')
    return (
        None
        if SERVICE_ENTRY.get(db, target) is not None
        else Fault(RejectionReason.NO_PARENT, f'parent service entry: "{target.name}" not found')
    )


_PROTOCOLS = {"TLSRoute": ("TLS",), "TCPRoute": ("TCP", "TLS"), "UDPRoute": ("UDP",)}
"""The protocols of listeners for routes of a kind."""


def find_rejection(
    parent: Parent, route: RouteKey, ref: ParentReference, hostnames: tuple[str, ...], sections: Sequence[str]
) -> Fault | None:
    """Return the reason why a listener rejects a route, or None if it accepts it.

    `sections` are the names of all listeners of the parent.
    """
    if ref.port and ref.port != parent.port:
        return Fault(RejectionReason.NO_PARENT, f"port {ref.port} not found")
    if ref.section_name and ref.section_name != parent.section:
        text = f'sectionName "{ref.section_name}" not found{choices(ref.section_name, sections)}'
        return Fault(RejectionReason.NO_PARENT, text)
    if parent.hosts and (fault := _hostname_rejection(parent, route.namespace, hostnames or ("*",))):
        return fault
    if route.kind not in parent.kinds:
        return Fault(RejectionReason.NOT_ALLOWED, f"kind {route.kind} is not allowed{_describe_kinds(parent, route)}")
    return None


def _describe_kinds(parent: Parent, route: RouteKey) -> str:
    """Return the end of the message about a route whose kind a listener does not accept. The mesh has no protocol."""
    if not parent.protocol:
        return ""
    kinds = ", ".join(sorted(kind.name for kind in parent.kinds)) or "no routes"
    text = f'; the listener "{parent.section}" with the protocol {parent.protocol} accepts {kinds}'
    required = _PROTOCOLS.get(route.kind.name, ())
    if not required or parent.protocol in required:
        return text
    return f"{text}; a {route.kind.name} requires the protocol {' or '.join(required)}"


def _hostname_rejection(parent: Parent, namespace: str, hostnames: tuple[str, ...]) -> Fault | None:
    """Return the reason why a listener rejects the hostnames of a route in `namespace`, or None if it accepts at least
    one of them."""
    hostname_matches = False
    for allowed, _, host in (entry.rpartition("/") for entry in parent.hosts):
        if any(matches(host, name) for name in hostnames):
            if allowed in ("", "*", namespace):
                return None
            hostname_matches = True
    if hostname_matches:
        message = (
            f'hostnames matched parent hostname "{parent.hostname}", '
            f'but namespace "{namespace}" is not allowed by the parent'
        )
        return Fault(RejectionReason.NOT_ALLOWED, message)
    return Fault(RejectionReason.NO_HOSTNAME, f'no hostnames matched parent hostname "{parent.hostname}"')

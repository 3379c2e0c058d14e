"""Attachments of routes to listeners, and the reasons why listeners reject routes."""

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

    `target` is the referenced object. `sibling_hostnames` are the hostnames of all listeners with the same port and
    protocol, including this one. A sibling receives the requests that its hostname matches more specifically.
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
            len(rival) >= len(hostname) and subset_of(host, rival)
            for rival in self.sibling_hostnames
            if rival and rival != hostname
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
    suggests = len(binding.parent_refs) <= _MAX_SUGGESTED
    for ref in binding.parent_refs:
        kind = GroupKind(ref.group, ref.kind)
        if kind in PARENTS:
            target = ObjectKey(ref.namespace or route.namespace, ref.name)
            text = f"{ref.group}/{ref.kind}/{ref.name}/{ref.section_name or ''}/{ref.port or 0}.{target.namespace}"
            by_reference += (
                (text, attachment) for attachment in _attach(db, route, ref, kind, target, binding.hostnames, suggests)
            )
    return tuple(attachment for _, attachment in sorted(by_reference, key=lambda pair: pair[0]))


@derived
def _hostnames(db: Mesh, owner: OwnerKey) -> dict[tuple[int, str], tuple[str, ...]]:
    """Return the hostnames of the listeners of a parent by port and protocol."""
    names: dict[tuple[int, str], set[str]] = {}
    for parent in parents_of(db, owner):
        names.setdefault((parent.port, parent.protocol), set()).add(parent.hostname)
    return {place: tuple(sorted(hosts)) for place, hosts in names.items()}


_MAX_SUGGESTED, _MAX_SECTIONS = 10, 20
"""Maximum numbers of parent references of a route for which messages suggest a listener, and of listeners whose names
are compared, which takes time."""


def _attach(
    db: Mesh,
    route: RouteKey,
    ref: ParentReference,
    kind: GroupKind,
    target: ObjectKey,
    hostnames: tuple[str, ...],
    suggests: bool,
) -> Iterable[ListenerAttachment]:
    if kind in (SERVICE.id, SERVICE_ENTRY.id):
        yield ListenerAttachment(ref, kind, target, MESH_PARENT, _absent(db, kind, target))
        return
    owner = OwnerKey(kind, target)
    parents, siblings = parents_of(db, owner), _hostnames(db, owner)
    sections = [parent.section for parent in parents] if ref.section_name else []
    is_misnamed = ref.section_name is not None and ref.section_name not in sections
    hint = choices(ref.section_name or "", sections[:_MAX_SECTIONS]) if is_misnamed and suggests else ""
    for parent in parents:
        yield ListenerAttachment(
            ref,
            kind,
            target,
            parent,
            find_rejection(parent, route, ref, hostnames, hint),
            siblings[parent.port, parent.protocol],
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
    parent: Parent, route: RouteKey, ref: ParentReference, hostnames: tuple[str, ...], hint: str
) -> Fault | None:
    """Return the reason why a listener rejects a route, or None if it accepts it.

    `hint` is appended to the reason if no listener has the name in the reference.
    """
    if ref.port and ref.port != parent.port:
        return Fault(RejectionReason.NO_PARENT, f"port {ref.port} not found")
    if ref.section_name and ref.section_name != parent.section:
        return Fault(RejectionReason.NO_PARENT, f'sectionName "{ref.section_name}" not found{hint}')
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

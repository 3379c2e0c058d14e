"""Parents of routes: listeners of Gateways and ListenerSets, and the mesh. Services and ServiceEntries represent the
mesh."""

from __future__ import annotations

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import ObjectKey
from pilot.derive import derived
from pilot.mesh.gateway_api.gateways import OwnerKey
from pilot.mesh.gateway_api.generated_names import listener_gateway
from pilot.mesh.gateway_api.listeners import ROUTES, listeners_of
from pilot.mesh.tables.database import Mesh

MESH = "mesh"
PARENTS = (KUBERNETES_GATEWAY.id, LISTENER_SET.id, SERVICE.id, SERVICE_ENTRY.id)


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A parent that routes may attach to: a listener, or the mesh.

    `gateway` is its name in VirtualServices. `hosts` have the form `namespace/host`. The other fields are those of the
    listener.
    """

    gateway: str
    kinds: tuple[GroupKind, ...] = ROUTES
    hosts: tuple[str, ...] = ()
    hostname: str = ""
    section: str = ""
    port: int = 0
    protocol: str = ""


MESH_PARENT = Parent(gateway=MESH)


@derived
def parents_of(db: Mesh, owner: OwnerKey) -> tuple[Parent, ...]:
    """Return the listeners of a Gateway, or the valid listeners of a ListenerSet, sorted by the names of their Istio
    Gateways."""
    kind, key = owner
    parents = [
        Parent(
            gateway=f"{key.namespace}/{listener_gateway(key.name, listener.section)}",
            kinds=listener.kinds,
            hosts=listener.server.hosts,
            hostname=listener.hostname,
            section=listener.section,
            port=listener.port,
            protocol=listener.protocol,
        )
        for listener in listeners_of(db, kind, key)
        if listener.server is not None and not listener.conflicted and (listener.valid or kind == KUBERNETES_GATEWAY.id)
    ]
    return tuple(sorted(parents, key=lambda parent: parent.gateway))


def mesh_hosts(db: Mesh, kind: GroupKind, target: ObjectKey) -> tuple[str, ...]:
    """Return the hosts of a Service or ServiceEntry. Not memoised."""
    if kind == SERVICE.id:
        return (f"{target.name}.{target.namespace}.svc.{db.settings.registry.domain}",)
    entry = SERVICE_ENTRY.get(db, target)
    return entry.spec.hosts if entry is not None else ()

"""What routes may attach to: listeners of Gateways and ListenerSets, and the mesh by way of a Service or ServiceEntry."""

from __future__ import annotations

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.derive import derived
from pilot.mesh.gateway_api.gateways import OwnerKey
from pilot.mesh.gateway_api.listeners import ROUTES, owned_listeners
from pilot.mesh.gateway_api.names import listener_gateway
from pilot.mesh.tables.database import Mesh

MESH = "mesh"
PARENTS = (KUBERNETES_GATEWAY.id, LISTENER_SET.id, SERVICE.id, SERVICE_ENTRY.id)


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a route may attach to. `gateway`: as VirtualServices name it. `hosts`: `namespace/host`; the rest is the listener's."""

    gateway: str
    kinds: tuple[GroupKind, ...] = ROUTES
    hosts: tuple[str, ...] = ()
    hostname: str = ""
    section: str = ""
    port: int = 0
    protocol: str = ""


THE_MESH = Parent(gateway=MESH)


@derived
def parents_of(db: Mesh, owner: OwnerKey) -> tuple[Parent, ...]:
    """Returns the listeners of a Gateway, or those of a ListenerSet that are valid, by the names of their Gateways."""
    kind, key = owner
    found = [
        Parent(
            gateway=f"{key.namespace}/{listener_gateway(key.name, one.section)}",
            kinds=one.kinds,
            hosts=one.server.hosts,
            hostname=one.hostname,
            section=one.section,
            port=one.port,
            protocol=one.protocol,
        )
        for one in owned_listeners(db, kind, key)
        if one.server is not None and not one.conflicted and (one.valid or kind == KUBERNETES_GATEWAY.id)
    ]
    return tuple(sorted(found, key=lambda parent: parent.gateway))

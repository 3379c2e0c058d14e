"""The Gateways of Istio that listeners of the Gateway API become: one for each listener that is valid."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.istio import GATEWAY
from pilot.config.networking.gateway import Gateway
from pilot.config.object import Object, ObjectKey, Origin
from pilot.derive import Gather, derived
from pilot.mesh.gateway_api.gateways import ListenerKey, OwnerKey, find_owner, routers_of
from pilot.mesh.gateway_api.listeners import built_listener, owned_listeners
from pilot.mesh.gateway_api.names import listener_gateway
from pilot.mesh.tables.database import Mesh


@derived
def _owners(db: Mesh) -> tuple[OwnerKey, ...]:
    return (
        *(OwnerKey(KUBERNETES_GATEWAY.id, key) for key in KUBERNETES_GATEWAY.all_keys(db)),
        *(OwnerKey(LISTENER_SET.id, key) for key in LISTENER_SET.all_keys(db)),
    )


@derived
def _listener_keys(db: Mesh, owner: OwnerKey) -> tuple[ListenerKey, ...] | None:
    return tuple(one.key for one in owned_listeners(db, *owner) if one.valid and one.server is not None) or None


_keys_by_owner: Gather[OwnerKey, [], tuple[ListenerKey, ...]] = Gather("valid_listeners", _owners, _listener_keys)


@derived
def _all_listeners(db: Mesh) -> tuple[ListenerKey, ...]:
    return tuple(key for keys in _keys_by_owner(db).values() for key in keys)


@derived
def _listener_gateway(db: Mesh, key: ListenerKey) -> Object[Gateway] | None:
    built, owner = built_listener(db, key), find_owner(db, key.kind, key.owner)
    if built is None or built.server is None or owner is None or not built.valid:
        return None
    routers = routers_of(db, built.gateway)
    if not routers.services:
        return None
    return Object(
        GATEWAY.id,
        owner.namespace,
        listener_gateway(owner.name, built.section),
        Gateway(servers=(built.server,)),
        created=owner.created,
        origin=Origin(
            semantics="gateway",
            parents=(owner.ref,),
            services=routers.services,
            namespace=built.gateway.namespace,
            account=routers.account,
        ),
    )


_by_listener: Gather[ListenerKey, [], Object[Gateway]] = Gather(
    "gateways_of_listeners", _all_listeners, _listener_gateway
)


@derived
def gateways_of_listeners(db: Mesh) -> Mapping[ObjectKey, Object[Gateway]]:
    """Returns the Gateways of all listeners; of two of one name the first counts."""
    found: dict[ObjectKey, Object[Gateway]] = {}
    for made in _by_listener(db).values():
        found.setdefault(made.key, made)
    return found

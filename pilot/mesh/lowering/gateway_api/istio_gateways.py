"""Istio Gateways that are converted from the Gateway API. There is one for each valid listener."""

from __future__ import annotations

from collections.abc import Mapping

from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.istio import GATEWAY
from pilot.config.networking.gateway import Gateway
from pilot.config.object import Object, ObjectKey, Origin
from pilot.derive import Gather, derived
from pilot.mesh.gateway_api.gateways import ListenerKey, OwnerKey, find_owner, routers_of
from pilot.mesh.gateway_api.generated_names import listener_gateway
from pilot.mesh.gateway_api.listeners import gateway_listener, listeners_of
from pilot.mesh.tables.database import Mesh


@derived
def _owners(db: Mesh) -> tuple[OwnerKey, ...]:
    return (
        *(OwnerKey(KUBERNETES_GATEWAY.id, key) for key in KUBERNETES_GATEWAY.all_keys(db)),
        *(OwnerKey(LISTENER_SET.id, key) for key in LISTENER_SET.all_keys(db)),
    )


@derived
def _listener_keys(db: Mesh, owner: OwnerKey) -> tuple[ListenerKey, ...] | None:
    return (
        tuple(listener.key for listener in listeners_of(db, *owner) if listener.valid and listener.server is not None)
        or None
    )


_keys_by_owner: Gather[OwnerKey, [], tuple[ListenerKey, ...]] = Gather("valid_listeners", _owners, _listener_keys)


@derived
def _all_listeners(db: Mesh) -> tuple[ListenerKey, ...]:
    return tuple(key for keys in _keys_by_owner(db).values() for key in keys)


@derived
def _listener_gateway(db: Mesh, key: ListenerKey) -> Object[Gateway] | None:
    listener, owner = gateway_listener(db, key), find_owner(db, key.kind, key.owner)
    if listener is None or listener.server is None or owner is None or not listener.valid:
        return None
    routers = routers_of(db, listener.gateway)
    if not routers.services:
        return None
    return Object(
        GATEWAY.id,
        owner.namespace,
        listener_gateway(owner.name, listener.section),
        Gateway(servers=(listener.server,)),
        created=owner.created,
        origin=Origin(
            semantics="gateway",
            parents=(owner.ref,),
            services=routers.services,
            namespace=listener.gateway.namespace,
            account=routers.account,
        ),
    )


_by_listener: Gather[ListenerKey, [], Object[Gateway]] = Gather(
    "gateways_of_listeners", _all_listeners, _listener_gateway
)


@derived
def gateways_of_listeners(db: Mesh) -> Mapping[ObjectKey, Object[Gateway]]:
    """Return the Gateways of all listeners. If two Gateways have the same name, the first takes precedence."""
    gateways: dict[ObjectKey, Object[Gateway]] = {}
    for gateway in _by_listener(db).values():
        gateways.setdefault(gateway.key, gateway)
    return gateways

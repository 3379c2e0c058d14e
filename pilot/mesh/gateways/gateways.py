"""The Gateways that select a router, and their servers merged by port into one logical gateway.

Servers are told apart by `ServerKey`, so that the merged gateway is a small hashable value: a server's own content is read by
those who build from it, and an edit of a certificate's name does not touch the routes.
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.istio import GATEWAY
from pilot.config.networking.gateway import Gateway, Server
from pilot.config.object import Object, ObjectKey, age
from pilot.config.protocol import Protocol
from pilot.derive import derived, hub
from pilot.mesh.gateways.merge import merge
from pilot.mesh.gateways.servers import GatewaySelectionKey, MergedGateway, ServerKey, TargetPort, qualify_hosts
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

KEEPS_PORTS = "experimental.istio.io/disable-gateway-port-translation"  # label of a Service that Gateway ports are not looked up in


class GatewaySelector(NamedTuple):
    """Which routers a Gateway is for: those with all of the labels, or those of the services.

    `deployed`: the routers are deployed for it; `generated`: it is a listener of the Gateway API.
    """

    gateway: ObjectKey
    labels: frozenset[tuple[str, str]]
    services: frozenset[ServiceRef] | None = None
    deployed: bool = False
    generated: bool = False


@hub
def gateway_selectors(db: Mesh) -> tuple[GatewaySelector, ...]:
    """Returns every Gateway with what it selects by (no labels: every router), oldest first."""
    objects = [o for key in GATEWAY.all_keys(db) if (o := GATEWAY.get(db, key)) is not None]
    return tuple(_selector(o) for o in sorted(objects, key=age))


def _selector(o: Object[Gateway]) -> GatewaySelector:
    labels, origin = frozenset(o.spec.selector.items()), o.origin
    if origin is None or not origin.services:
        return GatewaySelector(o.key, labels)
    services = frozenset(ServiceRef(host, origin.namespace) for host in origin.services)
    return GatewaySelector(o.key, labels, services, bool(origin.account), True)


@derived
def servers(db: Mesh, gateway: ObjectKey) -> tuple[Server, ...]:
    """Returns the servers of a Gateway, with hosts of the forms `host` and `namespace/host` only."""
    found = GATEWAY.get(db, gateway)
    return tuple(qualify_hosts(s, gateway.namespace) for s in found.spec.servers) if found is not None else ()


@derived
def server(db: Mesh, key: ServerKey) -> Server | None:
    """Returns one server, with hosts as in `servers`; None where there is none at that position."""
    found = servers(db, key.gateway)
    return found[key.position] if key.position < len(found) else None


@derived
def gateway_selection_key(db: Mesh, node_id: str) -> GatewaySelectionKey:
    """Returns the Gateways that select the router of that node id, and its own service ports."""
    proxy = find_proxy(db, node_id)
    labels = frozenset(proxy_labels(db, node_id).items())
    limit = proxy.namespace if db.settings.gateways.scope_to_namespace else None
    mine = frozenset(target.ref for target in service_targets(db, node_id))
    found = [s for s in gateway_selectors(db) if limit in (None, s.gateway.namespace) and _selects(s, labels, mine)]
    if db.settings.gateway_api.strict_merging:
        found = _without_strangers(found)
    named = tuple((s.gateway, s.services & mine) for s in found if s.services is not None)
    return GatewaySelectionKey(tuple(s.gateway for s in found), service_ports(db, node_id) if found else (), named)


def _selects(selector: GatewaySelector, labels: frozenset[tuple[str, str]], services: frozenset[ServiceRef]) -> bool:
    return selector.labels <= labels if selector.services is None else not selector.services.isdisjoint(services)


def _without_strangers(found: list[GatewaySelector]) -> list[GatewaySelector]:
    """Returns, of the Gateways that select a router which is deployed for some, these and the others of their namespaces."""
    home = {s.gateway.namespace for s in found if s.deployed}
    return [s for s in found if s.generated or s.gateway.namespace in home] if home else found


@derived
def service_ports(db: Mesh, node_id: str) -> tuple[TargetPort, ...]:
    """Returns the ports of the services that select a router."""
    out = []
    for target in service_targets(db, node_id):
        found = service(db, target.ref)
        translates = found is None or not any(key == KEEPS_PORTS for key, _ in found.labels)
        out.append(
            TargetPort(
                target.port.number, target.target_port, target.port.protocol is Protocol.UDP, translates, target.ref
            )
        )
    return tuple(out)


@derived
def merged_gateway(db: Mesh, selected: GatewaySelectionKey) -> MergedGateway:
    """Returns the servers of the selected Gateways by port; what conflicts with an older server is rejected."""
    listed = [(key, servers(db, key)) for key in selected.gateways]
    return merge(listed, selected.ports, db.settings.gateways.quic_listeners, dict(selected.named))

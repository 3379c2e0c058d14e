"""The Gateways that select a router, and their servers merged by port into one logical gateway.

Servers are told apart by `ServerKey`, so that the merged gateway is a small hashable value: a server's own content is read by
those who build from it, and an edit of a certificate's name does not touch the routes.
"""
from __future__ import annotations

from pilot.derive import derived, hub
from pilot.model.config.gateway import Server
from pilot.model.config.object import ObjectKey, age
from pilot.model.inputs import Mesh
from pilot.model.service import Protocol
from pilot.model.views.gateway_merge import merge
from pilot.model.views.gateway_servers import GatewaySelectionKey, MergedGateway, ServerKey, TargetPort, qualify_hosts
from pilot.model.views.kinds.gateways import gateways
from pilot.model.views.proxies import find_proxy
from pilot.model.views.service_targets import service_targets
from pilot.model.views.services import service
from pilot.model.views.workloads import proxy_labels

KEEPS_PORTS = "experimental.istio.io/disable-gateway-port-translation"  # label of a Service that Gateway ports are not looked up in

@hub
def gateway_selectors(db: Mesh) -> tuple[tuple[ObjectKey, frozenset[tuple[str, str]]], ...]:
    """Returns every Gateway with the labels that it selects by (none: every router), oldest first."""
    objects = [o for key in gateways.all_keys(db) if (o := gateways.get(db, key)) is not None]
    return tuple((o.key, frozenset(o.spec.selector.items())) for o in sorted(objects, key=age))


@derived
def servers(db: Mesh, gateway: ObjectKey) -> tuple[Server, ...]:
    """Returns the servers of a Gateway, with hosts of the forms `host` and `namespace/host` only."""
    found = gateways.get(db, gateway)
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
    own = db.settings.gateways.scope_to_namespace
    gateways = tuple(
        key for key, selector in gateway_selectors(db) if selector <= labels and (not own or key.namespace == proxy.namespace)
    )
    return GatewaySelectionKey(gateways, service_ports(db, node_id) if gateways else ())


@derived
def service_ports(db: Mesh, node_id: str) -> tuple[TargetPort, ...]:
    """Returns the ports of the services that select a router."""
    out = []
    for target in service_targets(db, node_id):
        found = service(db, target.ref)
        translates = found is None or not any(key == KEEPS_PORTS for key, _ in found.labels)
        out.append(TargetPort(target.port.number, target.target_port, target.port.protocol is Protocol.UDP, translates))
    return tuple(out)


@derived
def merged_gateway(db: Mesh, selected: GatewaySelectionKey) -> MergedGateway:
    """Returns the servers of the selected Gateways by port; what conflicts with an older server is rejected."""
    return merge([(key, servers(db, key)) for key in selected.gateways], selected.ports, db.settings.gateways.quic_listeners)

"""The Gateways that select a router, merged into one logical gateway that is grouped by port.

The merged gateway refers to servers by `ServerKey`, so it stays a small hashable value. Builders read the contents of
servers themselves, so an edit to a credential name does not affect routes.
"""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.kinds.istio import GATEWAY
from pilot.config.networking.gateway import Gateway, Server
from pilot.config.object import Object, ObjectKey, age
from pilot.config.protocol import Protocol
from pilot.derive import Steps, derived, derived_in_steps, hub
from pilot.mesh.gateways.merge import merge_in_steps
from pilot.mesh.gateways.servers import GatewaySelectionKey, MergedGateway, ServerKey, TargetPort, qualify_hosts
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.service_targets import service_targets
from pilot.mesh.registry.services import service
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import find_proxy

DISABLE_PORT_TRANSLATION = "experimental.istio.io/disable-gateway-port-translation"
"""Label of Services that are ignored when ports of Gateways are translated to target ports."""


class GatewaySelector(NamedTuple):
    """The routers that a Gateway selects. They have all of `labels` or, if `services` is set, they are the workloads of
    these services.

    - `deployed`: the routers were deployed for this Gateway.
    - `generated`: the Gateway was converted from a listener of the Gateway API.
    """

    gateway: ObjectKey
    labels: frozenset[tuple[str, str]]
    services: frozenset[ServiceRef] | None = None
    deployed: bool = False
    generated: bool = False


@hub
def gateway_selectors(db: Mesh) -> tuple[GatewaySelector, ...]:
    """Return the selector of every Gateway, oldest first. Empty labels select every router."""
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
    """Return the servers of a Gateway. Their hosts are normalized to `host` or `namespace/host`."""
    row = GATEWAY.get(db, gateway)
    return tuple(qualify_hosts(s, gateway.namespace) for s in row.spec.servers) if row is not None else ()


@derived
def gateway_ports(db: Mesh, gateway: ObjectKey) -> tuple[int, ...]:
    """Return the distinct port numbers of a Gateway, in the order of its servers."""
    numbers = (server.port.number if server.port is not None else 0 for server in servers(db, gateway))
    return tuple(dict.fromkeys(numbers))


@derived
def server(db: Mesh, key: ServerKey) -> Server | None:
    """Return one server as in `servers`, or None if it does not exist."""
    listed = servers(db, key.gateway)
    return listed[key.position] if key.position < len(listed) else None


@derived
def gateway_selection_key(db: Mesh, node_id: str) -> GatewaySelectionKey:
    """Return the Gateways that select a router, and the ports of the router's services."""
    proxy = find_proxy(db, node_id)
    labels = frozenset(proxy_labels(db, node_id).items())
    limit = proxy.namespace if db.settings.gateways.scope_to_namespace else None
    refs = frozenset(target.ref for target in service_targets(db, node_id))
    selectors = [s for s in gateway_selectors(db) if limit in (None, s.gateway.namespace) and _selects(s, labels, refs)]
    if db.settings.gateway_api.strict_merging:
        selectors = _in_home_namespaces(selectors)
    named = tuple((s.gateway, s.services & refs) for s in selectors if s.services is not None)
    ports = service_ports(db, node_id) if selectors else ()
    return GatewaySelectionKey(tuple(s.gateway for s in selectors), ports, named)


def _selects(selector: GatewaySelector, labels: frozenset[tuple[str, str]], services: frozenset[ServiceRef]) -> bool:
    return selector.labels <= labels if selector.services is None else not selector.services.isdisjoint(services)


def _in_home_namespaces(selectors: list[GatewaySelector]) -> list[GatewaySelector]:
    """Return the Gateways that a router accepts. The home namespaces of a router are those of the Gateways that it was
    deployed for.

    A router without home namespaces accepts all Gateways. Any other router accepts generated Gateways, and the Gateways
    in its home namespaces.
    """
    home = {s.gateway.namespace for s in selectors if s.deployed}
    return [s for s in selectors if s.generated or s.gateway.namespace in home] if home else selectors


@derived
def service_ports(db: Mesh, node_id: str) -> tuple[TargetPort, ...]:
    """Return the ports of the services that select a router."""
    out = []
    for target in service_targets(db, node_id):
        selecting = service(db, target.ref)
        translates = selecting is None or not any(key == DISABLE_PORT_TRANSLATION for key, _ in selecting.labels)
        out.append(
            TargetPort(
                target.port.number, target.target_port, target.port.protocol is Protocol.UDP, translates, target.ref
            )
        )
    return tuple(out)


@derived_in_steps
def merged_gateway(db: Mesh, selected: GatewaySelectionKey) -> Steps[MergedGateway]:
    """Return the servers of the selected Gateways, grouped by port. Servers that conflict with an older one are
    rejected."""
    listed = [(key, servers(db, key)) for key in selected.gateways]
    quic = db.settings.gateways.quic_listeners
    return (yield from merge_in_steps(listed, selected.ports, quic, dict(selected.named)))

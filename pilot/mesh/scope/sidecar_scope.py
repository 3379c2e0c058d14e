"""The Sidecar that applies to a workload, its egress listeners and its outbound traffic policy.

The services that the listeners import are computed in the module `imports`.
"""

from __future__ import annotations

import msgspec

from pilot.config.kinds.istio import SIDECAR
from pilot.config.networking.sidecar import Sidecar, SidecarPort
from pilot.config.networking.virtual_service import Destination
from pilot.config.object import Object, ObjectKey
from pilot.config.protocol import Protocol, parse_protocol
from pilot.derive import derived, hub
from pilot.mesh.model.facets import Labels, ScopeFacet
from pilot.mesh.scope.egress_hosts import ANY_NAMESPACE, EgressHostsKey, HostSet, parse_hosts
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config


class EgressListener(msgspec.Struct, frozen=True, cache_hash=True):
    """An egress listener. If `port` is None, it covers all ports of the services that it imports.

    With `match_port`, only services that have the listener's port are included, and only with this port.
    """

    hosts: EgressHostsKey
    port: SidecarPort | None = None
    bind: str = ""
    capture_mode: str = "DEFAULT"

    @property
    def match_port(self) -> bool:
        return (
            self.port is not None
            and self.port.number != 0
            and parse_protocol(self.port.protocol) is not Protocol.HTTP_PROXY
        )


class OutboundPolicy(msgspec.Struct, frozen=True, cache_hash=True):
    """The policy for traffic to unknown destinations.

    `mode` is REGISTRY_ONLY, ALLOW_ANY or ALLOW_ANY_DYNAMIC_DNS. If a Sidecar sets `egress_proxy`, the traffic is sent
    there instead.
    """

    mode: str
    egress_proxy: Destination | None = None

    @property
    def dynamic_dns(self) -> bool:
        return self.mode == "ALLOW_ANY_DYNAMIC_DNS"


EVERYTHING = EgressListener(EgressHostsKey(((ANY_NAMESPACE, HostSet(("*",))),)))


# -- selection of the Sidecar ------------------------------------------------------------------------------------------


@hub
def sidecar_order(db: Mesh, namespace: str) -> tuple[ObjectKey, ...]:
    """Return the Sidecars in a namespace, in order of precedence. Those with a selector precede the others, and older
    Sidecars precede newer ones."""
    sidecars = [
        (key, row) for key in SIDECAR.keys(db, "namespace", namespace) if (row := SIDECAR.get(db, key)) is not None
    ]
    sidecars.sort(key=lambda item: (item[1].spec.workload_selector is None, item[1].created, item[0].name))
    return tuple(key for key, _ in sidecars)


@derived
def selector_keys(db: Mesh, namespace: str) -> frozenset[str]:
    """Return the label keys in the selectors of a namespace's Sidecars."""
    specs = (find_sidecar(db, key) for key in sidecar_order(db, namespace))
    return frozenset(
        label
        for spec in specs
        if spec is not None and spec.workload_selector is not None
        for label in spec.workload_selector.labels
    )


@derived
def sidecar_of(db: Mesh, namespace: str, labels: Labels) -> ObjectKey | None:
    """Return the Sidecar for a workload, or None if there is none.

    A Sidecar in the workload's namespace takes precedence over one without a selector in the root namespace.
    """
    for key in sidecar_order(db, namespace):
        spec = find_sidecar(db, key)
        if spec is not None and (spec.workload_selector is None or spec.workload_selector.labels.items() <= labels):
            return key
    for key in sidecar_order(db, mesh_config(db).root_namespace):
        spec = find_sidecar(db, key)
        if spec is not None and spec.workload_selector is None:
            return key
    return None


def find_sidecar(db: Mesh, key: ObjectKey | None) -> Sidecar | None:
    """Return a Sidecar, or None if it does not exist and the defaults apply."""
    row: Object[Sidecar] | None = SIDECAR.get(db, key) if key is not None else None
    return row.spec if row is not None else None


@derived
def outbound_traffic_policy(db: Mesh, scope: ScopeFacet) -> OutboundPolicy:
    """Return the outbound traffic policy of a scope's Sidecar or, if it has none, that of the mesh."""
    spec = find_sidecar(db, scope.sidecar)
    if spec is not None and spec.outbound_traffic_policy is not None:
        return OutboundPolicy(spec.outbound_traffic_policy.mode, spec.outbound_traffic_policy.egress_proxy)
    policy = mesh_config(db).outbound_traffic_policy
    return OutboundPolicy("ALLOW_ANY" if policy is None else policy.mode)


@derived
def egress_listeners(db: Mesh, scope: ScopeFacet) -> tuple[EgressListener, ...]:
    """Return the egress listeners of a scope, as written. Without a Sidecar, a single listener imports all services."""
    spec = find_sidecar(db, scope.sidecar)
    if spec is None or not spec.egress:
        return (EVERYTHING,)
    return tuple(
        EgressListener(
            parse_hosts(listener.hosts, scope.namespace), listener.port, listener.bind, listener.capture_mode
        )
        for listener in spec.egress
    )

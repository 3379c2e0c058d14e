"""Tells what users' Gateways and VirtualServices ask of a router in vain, because an older object has it."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import GATEWAY, VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.envoy.listener.gateway import covered_servers, repeated_names
from pilot.mesh.analysis.check import Check
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway
from pilot.mesh.proxies.router import gateway_listeners_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import routers


@derived
def router_problems(db: Mesh, node_id: str) -> tuple[Problem, ...]:
    """Returns the servers that are left out of a router's merged gateway, and conditions of TLS rules that have no filter chain there."""
    selected = gateway_selection_key(db, node_id)
    servers = (
        _warning("gateway-conflict", GATEWAY.id, r.key.gateway, f"spec.servers[{r.key.position}]", r.reason)
        for r in merged_gateway(db, selected).rejected
    )
    names = (
        _warning(
            "duplicate-host",
            VIRTUAL_SERVICE.id,
            r.virtual_service,
            f"spec.tls[{r.rule}].match[{r.match}].sniHosts",
            _taken(r.names),
        )
        for r in repeated_names(db, selected, gateway_listeners_facet(db, node_id))
    )
    covered = (
        _warning(
            "gateway-conflict",
            GATEWAY.id,
            key.gateway,
            f"spec.servers[{key.position}]",
            "an older server of the port has its address",
        )
        for key in covered_servers(db, selected, gateway_listeners_facet(db, node_id))
    )
    return (*servers, *covered, *names)


def _taken(names: tuple[str, ...]) -> str:
    return f"a server or an older rule of the same gateway port has {', '.join(names)}"


def _warning(code: str, kind: GroupKind, key: ObjectKey, path: str, message: str) -> Problem:
    return Problem(
        code=code,
        object=ObjectRef(kind, key.namespace, key.name),
        path=path,
        message=message,
        severity=Severity.WARNING,
    )


ROUTERS = Check("router", routers, router_problems)

"""Reports Gateways and VirtualServices that have no effect on a gateway, because older objects take precedence."""

from __future__ import annotations

from pilot.config.group_kind import GroupKind
from pilot.config.kinds.istio import GATEWAY, VIRTUAL_SERVICE
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.derive import derived
from pilot.envoy.listener.gateway.gateway_listeners import duplicate_matches, shadowed_servers
from pilot.mesh.analysis.check import Check
from pilot.mesh.gateways.gateways import gateway_selection_key, merged_gateway
from pilot.mesh.proxies.router import gateway_listeners_facet
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import routers


@derived
def router_problems(db: Mesh, node_id: str) -> tuple[Problem, ...]:
    """Return the problems of a gateway: servers without listeners, and TLS matches without filter chains."""
    selection = gateway_selection_key(db, node_id)
    servers = (
        _warning("gateway-conflict", GATEWAY.id, r.key.gateway, f"spec.servers[{r.key.position}]", r.reason)
        for r in merged_gateway(db, selection).rejected
    )
    names = (
        _warning(
            "duplicate-host",
            VIRTUAL_SERVICE.id,
            r.virtual_service,
            f"spec.tls[{r.rule}].match[{r.match}].sniHosts",
            f"a server or an older rule on the same gateway port already matches {', '.join(r.names)}",
        )
        for r in duplicate_matches(db, selection, gateway_listeners_facet(db, node_id))
    )
    covered = (
        _warning(
            "gateway-conflict",
            GATEWAY.id,
            key.gateway,
            f"spec.servers[{key.position}]",
            "an older server on the same port already receives this server's connections",
        )
        for key in shadowed_servers(db, selection, gateway_listeners_facet(db, node_id))
    )
    return (*servers, *covered, *names)


def _warning(code: str, kind: GroupKind, key: ObjectKey, path: str, message: str) -> Problem:
    return Problem(
        code=code,
        object=ObjectRef(kind, key.namespace, key.name),
        path=path,
        message=message,
        severity=Severity.WARNING,
    )


ROUTERS = Check("router", routers, router_problems)

"""Where a Gateway is reached: the addresses of the Services of its routers, as far as they have its ports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import RegistryKey
from pilot.mesh.model.service import Service, ServiceRef
from pilot.mesh.registry.endpoints import endpoints
from pilot.mesh.registry.external_addresses import external_addresses
from pilot.mesh.registry.services import kubernetes_key, service
from pilot.mesh.tables.database import Mesh

MANAGED = "gateway.istio.io/managed"


class GatewayAddresses(NamedTuple):
    """The addresses of a Gateway: those from outside, the virtual IPs, and `host:port` of the Services that serve its ports.

    `warnings`: what is missing. `usable`: it may still come, for nothing of it is the user's mistake.
    """

    external: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    usable: bool = True

    def shown(self, type_: str) -> tuple[str, ...]:
        """Returns what a status shows: addresses from outside, else those inside of a type ("": of both)."""
        if self.external:
            return self.external
        names = tuple(dict.fromkeys(one.rpartition(":")[0] for one in self.internal))
        return (*(self.virtual if type_ != "Hostname" else ()), *(names if type_ != "IPAddress" else ()))


class _Warning(NamedTuple):
    message: str
    usable: bool = False


def find_addresses(db: Mesh, hosts: tuple[str, ...], namespace: str, ports: tuple[int, ...]) -> GatewayAddresses:
    """Returns the addresses of ports of the Services of those host names in a namespace. No node of its own."""
    external: set[str] = set()
    virtual: set[str] = set()
    internal: list[str] = []
    warnings: dict[_Warning, None] = {}
    for host in hosts:
        ref = ServiceRef(host, namespace)
        found = service(db, ref)
        if found is None:
            warnings[_Warning(f'hostname "{host}" not found')] = None
            continue
        for port in ports:
            if endpoints(db, ref, port):
                internal.append(f"{host}:{port}")
                virtual.update(found.addresses)
                outside = _outside(db, ref, port)
                external.update(outside)
                if not outside and _awaits(db, ref):
                    warnings[_Warning(f'address pending for hostname "{host}"', usable=True)] = None
            else:
                warnings.update((one, None) for one in _missing(db, found, ref, port))
    told = sorted(warnings)
    return GatewayAddresses(
        tuple(sorted(external)),
        tuple(sorted(virtual)),
        tuple(sorted(internal)),
        tuple(w.message for w in told),
        all(w.usable for w in told),
    )


def _key(db: Mesh, ref: ServiceRef) -> RegistryKey | None:
    named = kubernetes_key(ref, db.settings.registry.domain)
    return RegistryKey(db.settings.registry.cluster_id, *named) if named is not None else None


def _outside(db: Mesh, ref: ServiceRef, port: int) -> tuple[str, ...]:
    key = _key(db, ref)
    return tuple(one.address for one in external_addresses(db, key, port)) if key is not None else ()


def _awaits(db: Mesh, ref: ServiceRef) -> bool:
    """Returns whether a Service is to get an address from outside."""
    key = _key(db, ref)
    row = SERVICE.get(db, key) if key is not None else None
    return row is not None and row.spec.type == "LoadBalancer"


def _missing(db: Mesh, found: Service, ref: ServiceRef, port: int) -> Iterator[_Warning]:
    """Yields why nothing serves a port."""
    by_port = {p.number: endpoints(db, ref, p.number) for p in found.ports}
    if not any(by_port.values()):
        yield _Warning(f'no instances found for hostname "{ref.hostname}"', usable=True)
        return
    hints = sorted(str(number) for number, served in by_port.items() if any(e.port == port for e in served))
    if hints:
        hint = f" (hint: the service port should be specified, not the workload port. Did you mean one of these ports: {hints}?)"
        yield _Warning(f'port {port} not found for hostname "{ref.hostname}"{hint}')
        return
    if MANAGED not in dict(found.labels) or port not in by_port:
        yield _Warning(f'port {port} not found for hostname "{ref.hostname}"')

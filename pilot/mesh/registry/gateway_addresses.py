"""Addresses of Gateways.

They are the addresses of the Services in front of a Gateway, if these Services have the ports of its listeners.
"""

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
    """The addresses of a Gateway.

    - `external`: its addresses outside the cluster.
    - `virtual`: its virtual IPs.
    - `internal`: the `host:port` of each Service port that serves the Gateway.
    - `warnings`: descriptions of missing addresses.
    - `usable`: False if an address is missing because of a user's mistake, and not because of a delay.
    """

    external: tuple[str, ...] = ()
    virtual: tuple[str, ...] = ()
    internal: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    usable: bool = True

    def status_addresses(self, type_: str) -> tuple[str, ...]:
        """Return the addresses for a status: the external addresses or, if there are none, the internal ones.

        Internal addresses are limited to those of the type `type_` (IPAddress or Hostname), unless it is "".
        """
        if self.external:
            return self.external
        names = tuple(dict.fromkeys(address.rpartition(":")[0] for address in self.internal))
        return (*(self.virtual if type_ != "Hostname" else ()), *(names if type_ != "IPAddress" else ()))


class _Warning(NamedTuple):
    message: str
    usable: bool = False


def find_addresses(db: Mesh, hosts: tuple[str, ...], namespace: str, ports: tuple[int, ...]) -> GatewayAddresses:
    """Return the addresses of the ports of Services with these hostnames in a namespace. Not memoised."""
    external: set[str] = set()
    virtual: set[str] = set()
    internal: list[str] = []
    warnings: dict[_Warning, None] = {}
    for host in hosts:
        ref = ServiceRef(host, namespace)
        row = service(db, ref)
        if row is None:
            warnings[_Warning(f'hostname "{host}" not found')] = None
            continue
        for port in ports:
            if endpoints(db, ref, port):
                internal.append(f"{host}:{port}")
                virtual.update(row.addresses)
                addresses = _outside(db, ref, port)
                external.update(addresses)
                if not addresses and _awaits_external_address(db, ref):
                    warnings[_Warning(f'address pending for hostname "{host}"', usable=True)] = None
            else:
                warnings.update((warning, None) for warning in _missing(db, row, ref, port))
    ordered = sorted(warnings)
    return GatewayAddresses(
        tuple(sorted(external)),
        tuple(sorted(virtual)),
        tuple(sorted(internal)),
        tuple(warning.message for warning in ordered),
        all(warning.usable for warning in ordered),
    )


def _key(db: Mesh, ref: ServiceRef) -> RegistryKey | None:
    key = kubernetes_key(ref, db.settings.registry.domain)
    return RegistryKey(db.settings.registry.cluster_id, *key) if key is not None else None


def _outside(db: Mesh, ref: ServiceRef, port: int) -> tuple[str, ...]:
    key = _key(db, ref)
    return tuple(external.address for external in external_addresses(db, key, port)) if key is not None else ()


def _awaits_external_address(db: Mesh, ref: ServiceRef) -> bool:
    """Return True if a Service without an external address will receive one, because its type is LoadBalancer."""
    key = _key(db, ref)
    row = SERVICE.get(db, key) if key is not None else None
    return row is not None and row.spec.type == "LoadBalancer"


def _missing(db: Mesh, row: Service, ref: ServiceRef, port: int) -> Iterator[_Warning]:
    """Yield a warning if no endpoint serves a port of a Service."""
    by_port = {service_port.number: endpoints(db, ref, service_port.number) for service_port in row.ports}
    if not any(by_port.values()):
        yield _Warning(f'no instances found for hostname "{ref.hostname}"', usable=True)
        return
    hints = sorted(
        str(number)
        for number, port_endpoints in by_port.items()
        if any(endpoint.port == port for endpoint in port_endpoints)
    )
    if hints:
        hint = (
            " (hint: the service port should be specified, not the workload port. "
            f"Did you mean one of these ports: {hints}?)"
        )
        yield _Warning(f'port {port} not found for hostname "{ref.hostname}"{hint}')
        return
    if MANAGED not in dict(row.labels) or port not in by_port:
        yield _Warning(f'port {port} not found for hostname "{ref.hostname}"')

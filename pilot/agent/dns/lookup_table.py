"""Resolution of the mesh's host names: full names, short names and names with a search suffix."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from pilot.agent.dns.dns_message import Address
from protos import nds_pb2

NAME_TABLE = "type.googleapis.com/istio.networking.nds.v1.NameTable"
KUBERNETES = "Kubernetes"


class LookupTable:
    """Addresses keyed by name, for a proxy in `namespace` with the DNS suffix `domain`.

    `search` is the list of search suffixes of the application's resolver.
    """

    def __init__(self, namespace: str, domain: str, search: Sequence[str] = ()) -> None:
        self._namespace, self._domain = namespace, domain
        self._search = [f".{part.strip('.').lower()}." for part in search if part.strip(".")]
        self._addresses: dict[str, tuple[Address, ...]] | None = None

    @property
    def is_populated(self) -> bool:
        """Return whether the control plane has sent a table."""
        return self._addresses is not None

    def update(self, resources: list[bytes]) -> None:
        """Replace the table with the one in a response.

        A response without resources changes nothing. Raises ValueError if the table is malformed.
        """
        if not resources:
            return
        try:
            table = nds_pb2.NameTable.FromString(resources[0])
        except DecodeError as error:
            raise ValueError("invalid name table") from error
        addresses_by_name: dict[str, tuple[Address, ...]] = {}
        for host, info in table.table.items():
            if addresses := _parse_addresses(info.ips):
                for name in self._names(host.rstrip(".").lower(), info):
                    addresses_by_name[name] = addresses
        self._addresses = addresses_by_name

    def find(self, name: str) -> tuple[Address, ...] | None:
        """Return the addresses of a name in lower case with a trailing dot, or None if it is not in the mesh.

        Resolvers try a name with their search suffixes first. Such names are resolved too, which avoids a futile query
        to the upstream servers.
        """
        if self._addresses is None:
            return None
        if (addresses := self._lookup(self._addresses, name)) is not None:
            return addresses
        for suffix in self._search[:1]:
            if (
                name.endswith(suffix)
                and (addresses := self._addresses.get(name.removesuffix(suffix) + ".")) is not None
            ):
                return addresses
        return None

    def _lookup(self, table: dict[str, tuple[Address, ...]], name: str) -> tuple[Address, ...] | None:
        """Return the addresses of a name, or those of the longest wildcard that matches it."""
        addresses, parent = table.get(name), name
        while addresses is None and (parent := parent.partition(".")[2]):
            addresses = table.get(f"*.{parent}")
        return addresses

    def _names(self, host: str, info: nds_pb2.NameTable.NameInfo) -> list[str]:
        """Return all names of a host.

        A Kubernetes Service in the proxy's own domain also has the names NAME.NAMESPACE and NAME.NAMESPACE.svc. In the
        proxy's namespace, it has the name NAME too.
        """
        names = [f"{host}."]
        suffix = self._domain.removeprefix(f"{self._namespace}.")  # svc.cluster.local
        if info.registry == KUBERNETES and info.shortname and suffix and host.endswith(f".{suffix}"):
            names += [
                f"{info.shortname}.{info.namespace}.",
                f"{info.shortname}.{info.namespace}.{suffix.partition('.')[0]}.",
            ]
            if info.namespace == self._namespace:
                names.append(f"{info.shortname}.")
        return names


def _parse_addresses(texts: Sequence[str]) -> tuple[Address, ...]:
    """Return the addresses, without those that are invalid."""
    addresses = []
    for text in texts:
        try:
            addresses.append(ipaddress.ip_address(text))
        except ValueError:
            continue
    return tuple(addresses)

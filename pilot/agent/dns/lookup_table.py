"""The names of the mesh as an application asks for them: whole, short, and with the suffixes that its resolver adds."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from google.protobuf.message import DecodeError

from pilot.agent.dns.dns_message import Address
from protos import nds_pb2

NAME_TABLE = "type.googleapis.com/istio.networking.nds.v1.NameTable"
KUBERNETES = "Kubernetes"


class LookupTable:
    """Addresses by name, for a proxy in `namespace` with the suffix `domain`. `search` are the suffixes of the application's resolver."""

    def __init__(self, namespace: str, domain: str, search: Sequence[str] = ()) -> None:
        self._namespace, self._domain, self._search = (
            namespace,
            domain,
            [f".{part.strip('.').lower()}." for part in search if part.strip(".")],
        )
        self._addresses: dict[str, tuple[Address, ...]] | None = None

    @property
    def arrived(self) -> bool:
        """Whether there is a table at all."""
        return self._addresses is not None

    def take(self, resources: list[bytes]) -> None:
        """Takes what the control plane sends: one table, or none. ValueError where it is no table."""
        if not resources:
            return
        try:
            table = nds_pb2.NameTable.FromString(resources[0])
        except DecodeError as error:
            raise ValueError("it is not a table of names") from error
        found: dict[str, tuple[Address, ...]] = {}
        for host, info in table.table.items():
            if addresses := _parse(info.ips):
                for name in self._names(host.rstrip(".").lower(), info):
                    found[name] = addresses
        self._addresses = found

    def find(self, name: str) -> tuple[Address, ...] | None:
        """Returns the addresses of a name in lower case with a final dot; None where the mesh does not know it. A resolver tries names with
        its suffixes first; they are answered at once, so that no other server is asked for what cannot be there."""
        if self._addresses is None:
            return None
        if (found := self._lookup(self._addresses, name)) is not None:
            return found
        for suffix in self._search[:1]:
            if name.endswith(suffix) and (found := self._addresses.get(name.removesuffix(suffix) + ".")) is not None:
                return found
        return None

    def _lookup(self, addresses: dict[str, tuple[Address, ...]], name: str) -> tuple[Address, ...] | None:
        """Returns the addresses of a name, or of the longest wildcard that it is under."""
        found, rest = addresses.get(name), name
        while found is None and (rest := rest.partition(".")[2]):
            found = addresses.get(f"*.{rest}")
        return found

    def _names(self, host: str, info: nds_pb2.NameTable.NameInfo) -> list[str]:
        """Returns all names of a host. Short ones are those of Services in the proxy's own domain: name, name.namespace, name.namespace.svc."""
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


def _parse(texts: Sequence[str]) -> tuple[Address, ...]:
    """Returns the addresses among the texts."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_address(text))
        except ValueError:
            continue
    return tuple(found)

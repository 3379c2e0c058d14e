"""Addresses for the hosts of ServiceEntries that have none, for proxies that answer DNS themselves.

https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/#address-auto-allocation
Addresses of an entry's status are kept. Where no controller writes a status, they are dealt out in the order of the entries'
age from the first free address, so that every replica deals out the same.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Iterator, Mapping

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object, ObjectKey, age
from pilot.derive import Gather, derived, hub
from pilot.mesh.tables.database import Mesh

OPT_OUT = "networking.istio.io/enable-autoallocate-ip"

# What an entry says about addresses: its age, the hosts that want some, the ones they have by its status, the addresses it occupies.
AddressRequest = tuple[tuple[str, str, str], tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]


@derived
def _entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _request(db: Mesh, key: ObjectKey) -> AddressRequest | None:
    row: Object[ServiceEntry] | None = SERVICE_ENTRY.get(db, key)
    if row is None:
        return None
    if not wants_addresses(row):
        return (age(row), (), (), row.spec.addresses) if row.spec.addresses else None
    status = row.spec.status.addresses if row.spec.status is not None else ()
    hosts = tuple(dict.fromkeys(h for h in row.spec.hosts if "*" not in h or row.spec.resolution == "DYNAMIC_DNS"))
    return age(row), hosts, tuple((a.host.lower(), a.value) for a in status), ()


_requests: Gather[ObjectKey, [], AddressRequest] = Gather("address_requests", _entries, _request, hub=True)


@hub
def allocated_addresses(db: Mesh) -> Mapping[tuple[ObjectKey, str], tuple[str, ...]]:
    """Returns the IPv4 and IPv6 address of each host of each entry that gets some."""
    registry = db.settings.registry
    if not registry.ip_autoallocate:
        return {}
    return allocate(_requests(db), registry.ip_autoallocate_ipv4, registry.ip_autoallocate_ipv6)


@derived
def auto_addresses(db: Mesh, key: ObjectKey, host: str) -> tuple[str, ...]:
    """Returns the allocated addresses of one host of an entry, () where it gets none."""
    return allocated_addresses(db).get((key, host), ())


def wants_addresses(o: Object[ServiceEntry]) -> bool:
    """Returns whether an entry has no addresses, could use some, has a status to tell of them, and was not opted out by its label."""
    return (
        o.origin is None
        and o.spec.resolution != "NONE"
        and not o.spec.addresses
        and o.labels.get(OPT_OUT, "").lower() != "false"
    )


def allocate(
    requests: Mapping[ObjectKey, AddressRequest], *prefixes: str
) -> dict[tuple[ObjectKey, str], tuple[str, ...]]:
    """Returns the addresses of each host of each entry: those of the statuses, else one of each prefix that nobody has."""
    out: dict[tuple[ObjectKey, str], tuple[str, ...]] = {}
    taken: set[str] = set()
    oldest_first = sorted(requests.items(), key=lambda item: item[1][0])
    for key, (_, hosts, held, occupied) in oldest_first:
        taken.update(occupied)
        for host, address in held:
            if host in hosts and address not in taken:  # the older entry keeps one that two hold
                out[key, host] = (*out.get((key, host), ()), address)
                taken.add(address)
    free = [_free(prefix, taken) for prefix in prefixes]
    for key, (_, hosts, _, _) in oldest_first:
        for host in hosts:
            if (key, host) not in out:
                out[key, host] = tuple(a for pool in free if (a := next(pool, "")))
    return out


def _free(prefix: str, taken: Iterable[str]) -> Iterator[str]:
    """Yields the addresses of a prefix, without its first, that are not taken."""
    held = frozenset(taken)
    for i in range(1, ipaddress.ip_network(prefix).num_addresses):
        address = _address(prefix, i)
        if address not in held:
            yield address


@functools.lru_cache(maxsize=1 << 16)
def _address(prefix: str, number: int) -> str:
    """Returns an address of a prefix. Those that are taken are passed over at each allocation, so that their texts are kept."""
    network = ipaddress.ip_network(prefix)
    return str(network.network_address + number)

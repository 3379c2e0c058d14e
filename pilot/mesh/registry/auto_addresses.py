"""Allocates addresses to ServiceEntry hosts that have none, for proxies that answer DNS queries themselves.

https://istio.io/latest/docs/ops/configuration/traffic-management/dns-proxy/#address-auto-allocation

Addresses in the status of a ServiceEntry are kept, and so are those that this process or its predecessor allocated to
the same ServiceEntry and host. Free addresses are allocated in ascending order to the other ServiceEntries, oldest
first, so that all replicas that start with the same configuration allocate the same addresses.
"""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from typing import Any, cast

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.networking.service_entry import ServiceEntry
from pilot.config.object import Object, ObjectKey, age
from pilot.derive import UNSET, Database, Derived, Gather, Node, derived
from pilot.mesh.registry.excess_entries import is_ignored
from pilot.mesh.tables.database import REMEMBERED, Mesh

STEP = 100
"""Number of addresses that are examined in a step."""
FAMILIES = 2
"""Number of addresses of a host: one of each IP version."""
OPT_OUT = "networking.istio.io/enable-autoallocate-ip"

HostAddresses = Mapping[ObjectKey, Mapping[str, tuple[str, ...]]]
"""The addresses of each ServiceEntry, keyed by host. ServiceEntries with unchanged addresses keep their mapping."""
NO_HOSTS: Mapping[str, tuple[str, ...]] = {}
# Fields: the entry's age, the hosts that need addresses, their addresses in its status, and its own addresses.
AddressRequest = tuple[tuple[str, str, str], tuple[str, ...], tuple[tuple[str, str], ...], tuple[str, ...]]


@derived
def _entries(db: Mesh) -> tuple[ObjectKey, ...]:
    return SERVICE_ENTRY.all_keys(db)


@derived
def _request(db: Mesh, key: ObjectKey) -> AddressRequest | None:
    row: Object[ServiceEntry] | None = SERVICE_ENTRY.get(db, key)
    if row is None or is_ignored(db, key):
        return None
    if not needs_addresses(row):
        return (age(row), (), (), row.spec.addresses) if row.spec.addresses else None
    status = row.spec.status.addresses if row.spec.status is not None else ()
    hosts = tuple(dict.fromkeys(h for h in row.spec.hosts if "*" not in h or row.spec.resolution == "DYNAMIC_DNS"))
    return age(row), hosts, tuple((a.host.lower(), a.value) for a in status), ()


_requests: Gather[ObjectKey, [], AddressRequest] = Gather("address_requests", _entries, _request, hub=True)


class _AllocatedAddresses(Derived[[], HostAddresses]):
    """The derivation of all allocated addresses. A change affects only the hosts whose addresses differ."""

    has_steps = True

    def __init__(self, compute: Callable[[Mesh], Generator[None, None, HostAddresses]]) -> None:
        super().__init__(cast(Callable[..., HostAddresses], compute), hub=True)

    def reached(self, db: Database, node: Node, before: Any) -> Iterator[Node]:
        """Yield the nodes of changed addresses. If the derivation fails or failed before, yield its own node."""
        if before is UNSET or node.error is not None:
            yield node
            return
        reached: list[Node] = []
        db.touch(entries_without_address, (), reached)
        yield from reached
        reached.clear()
        after: HostAddresses = node.value
        for key in dict.fromkeys((*before, *after)):
            old, new = before.get(key, NO_HOSTS), after.get(key, NO_HOSTS)
            for host in dict.fromkeys((*old, *new)) if old is not new else ():
                if old.get(host) != new.get(host):
                    db.touch(auto_addresses, (key, host), reached)
                    yield from reached
                    reached.clear()


@_AllocatedAddresses
def allocated_addresses(db: Mesh) -> Generator[None, None, HostAddresses]:
    """Return the allocated IPv4 and IPv6 addresses."""
    registry = db.settings.registry
    if not registry.ip_autoallocate:
        return {}
    remembered = db.allocated_addresses.get(REMEMBERED) or {}
    return (
        yield from allocate(_requests(db), remembered, registry.ip_autoallocate_ipv4, registry.ip_autoallocate_ipv6)
    )


@derived
def auto_addresses(db: Mesh, key: ObjectKey, host: str) -> tuple[str, ...]:
    """Return the allocated addresses of a ServiceEntry's host, or () if it has none."""
    return allocated_addresses(db).get(key, NO_HOSTS).get(host, ())


@derived
def entries_without_address(db: Mesh) -> tuple[int, int]:
    """Return the numbers of ServiceEntries for which the IPv4 prefix and the IPv6 prefix have no free address."""
    entries_without = [0, 0]
    for key, by_host in allocated_addresses(db).items():
        partial = [host for host, addresses in by_host.items() if len(addresses) < FAMILIES]
        request = _request(db, key) if partial else None
        from_status = {host for host, _ in request[2]} if request is not None else set()
        texts = ["".join(by_host[host]) for host in partial if host not in from_status]
        entries_without[0] += any("." not in text for text in texts)
        entries_without[1] += any(":" not in text for text in texts)
    return entries_without[0], entries_without[1]


def needs_addresses(entry: Object[ServiceEntry]) -> bool:
    """Return True if addresses are allocated to a ServiceEntry.

    It must be a user's object without addresses, its resolution must not be NONE, and its label must not opt out.
    """
    return (
        entry.origin is None
        and entry.spec.resolution != "NONE"
        and not entry.spec.addresses
        and entry.labels.get(OPT_OUT, "").lower() != "false"
    )


def allocate(
    requests: Mapping[ObjectKey, AddressRequest], remembered: HostAddresses, *prefixes: str
) -> Generator[None, None, HostAddresses]:
    """Return the addresses in steps.

    They are the addresses in the status of the ServiceEntry or, if there are none, the remembered address or else a
    free one from each prefix. Addresses that are remembered for hosts that do not exist are used last.
    """
    allocated: dict[ObjectKey, dict[str, tuple[str, ...]]] = {}
    incomplete: dict[ObjectKey, dict[str, tuple[str, ...]]] = {}
    in_use: set[str] = set()
    oldest_first = sorted(requests.items(), key=lambda item: item[1][0])
    for key, (_, hosts, assigned, occupied) in oldest_first:
        in_use.update(occupied)
        own, addresses_by_host = frozenset(hosts), allocated.setdefault(key, {})
        for host, address in assigned:
            if host in own and address not in in_use:  # if two entries claim an address, the older one keeps it
                addresses_by_host[host] = (*addresses_by_host.get(host, ()), address)
                in_use.add(address)
        yield
    for key, (_, hosts, _, _) in oldest_first if remembered else ():
        former, addresses_by_host = remembered.get(key, NO_HOSTS), allocated[key]
        for host in hosts if former else ():
            addresses = _usable(former.get(host, ()), prefixes, in_use) if host not in addresses_by_host else ()
            in_use.update(addresses)
            if len(addresses) == len(prefixes):
                addresses_by_host[host] = addresses
            elif addresses:
                incomplete.setdefault(key, {})[host] = addresses
        yield
    reserved: list[str] = []
    for key, former in remembered.items():
        taken = allocated.get(key, NO_HOSTS)
        reserved += [address for host, addresses in former.items() if host not in taken for address in addresses]
        yield
    free = {prefix: _free(prefix, in_use, reserved) for prefix in prefixes}
    for key, (_, hosts, _, _) in oldest_first:
        addresses_by_host, partial = allocated[key], incomplete.get(key, NO_HOSTS)
        for host in hosts if len(addresses_by_host) < len(hosts) else ():
            if host not in addresses_by_host:
                addresses_by_host[host] = yield from _complete(partial.get(host, ()), free)
        yield
    shared: dict[ObjectKey, Mapping[str, tuple[str, ...]]] = {}
    for key, by_host in allocated.items():
        if by_host:
            shared[key] = former if (former := remembered.get(key, NO_HOSTS)) == by_host else by_host
        yield
    return shared


def _complete(
    addresses: tuple[str, ...], free: Mapping[str, Iterator[str | None]]
) -> Generator[None, None, tuple[str, ...]]:
    """Return an address from each prefix that has one, in steps: one of `addresses`, or else the next free one."""
    completed: list[str] = []
    for prefix, pool in free.items():
        own = next((address for address in addresses if _is_from(address, prefix)), None)
        if own is not None:
            completed.append(own)
            continue
        for address in pool:
            if address is not None:
                completed.append(address)
                break
            yield
    return tuple(completed)


def _usable(addresses: tuple[str, ...], prefixes: tuple[str, ...], in_use: Set[str]) -> tuple[str, ...]:
    """Return the first address from each prefix that is not in use."""
    firsts = (next((a for a in addresses if a not in in_use and _is_from(a, prefix)), None) for prefix in prefixes)
    return tuple(address for address in firsts if address is not None)


def _parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address)
    except ValueError:
        return None


@functools.lru_cache(maxsize=1 << 17)
def _is_from(address: str, prefix: str) -> bool:
    parsed = _parse(address)
    return parsed is not None and parsed in _network(prefix)


def _free(prefix: str, in_use: Set[str], reserved: Iterable[str]) -> Iterator[str | None]:
    """Yield the free addresses in a prefix, without its first address. Reserved addresses follow the others.

    None is yielded between two steps of the search for a free address.
    """
    later: dict[str, None] = {}
    for number, address in enumerate(reserved, 1):
        if address not in in_use and _is_from(address, prefix):
            later[address] = None
        if number % STEP == 0:
            yield None
    for number in range(1, _network(prefix).num_addresses):
        address = _address(prefix, number)
        if address not in in_use and address not in later:
            yield address
        elif number % STEP == 0:
            yield None
    yield from later


@functools.lru_cache(maxsize=16)
def _network(prefix: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(prefix, strict=False)


@functools.lru_cache(maxsize=1 << 16)
def _address(prefix: str, number: int) -> str:
    """Return an address in a prefix. The result is cached, because each allocation skips all addresses in use."""
    network = _network(prefix)
    return str(network.network_address + number)

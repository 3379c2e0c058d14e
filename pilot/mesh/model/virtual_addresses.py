"""Virtual addresses of services, as seen by the clients of a proxy."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.service import Registry, Service

ANY_IPV4 = "0.0.0.0"


class AddressFamiliesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The families of virtual addresses that a proxy uses.

    `dual` uses both families of a service at once, and `auto` uses allocated addresses. `cluster` is the argument of
    `Service.addresses_in`, "" for the default addresses.
    """

    ipv4: bool = True
    ipv6: bool = False
    dual: bool = False
    auto: bool = False
    cluster: str = ""


def virtual_addresses(service: Service, families: AddressFamiliesFacet, single: bool) -> tuple[str, ...]:
    """Return the addresses that clients of a proxy may use for a hostname.

    Only the last address that a ServiceEntry lists is used, whatever its family: istiod makes a service of each and
    keeps the last. `single` limits allocated addresses to the first of the proxy's families.
    """
    if service.registry is Registry.KUBERNETES:
        return _of_families(service.addresses_in(families.cluster), families)
    if service.addresses:
        return service.addresses[-1:]
    if not families.auto:
        return ()
    if not single:
        return _of_families(service.auto_addresses, families)
    candidates = [
        a
        for v6 in (False, True)
        for a in service.auto_addresses
        if (":" in a) is v6 and (families.ipv6 if v6 else families.ipv4)
    ]
    return tuple(candidates[:1])


def bound_addresses(service: Service, families: AddressFamiliesFacet) -> list[tuple[str, ...]]:
    """Return the addresses on which a proxy listens for a service, each with its additional addresses; ANY_IPV4 if
    there are none.

    Each address of a ServiceEntry is separate. The addresses of a Kubernetes Service are one address in several
    families.
    """
    if service.registry is Registry.EXTERNAL and service.addresses:
        return [(a,) for a in service.addresses]
    declared = addresses = service.addresses_in(families.cluster)
    if not declared and families.auto:
        addresses = tuple(sorted(service.auto_addresses, key=lambda a: ":" in a))
    candidates = tuple(a for a in addresses if (families.ipv6 if ":" in a else families.ipv4))
    if families.ipv4 and families.ipv6:
        candidates = tuple(a for a in candidates if (":" in a) is (":" in candidates[0]))
    if not candidates:
        return [(declared[0] if declared else ANY_IPV4,)]
    return [(candidates[0], *(addresses if families.dual else candidates)[1:])]


def _of_families(addresses: tuple[str, ...], families: AddressFamiliesFacet) -> tuple[str, ...]:
    """Return the addresses of the proxy's family.

    A proxy with both families gets those of the first address's family, or all if `dual`.
    """
    if families.dual:
        return addresses
    candidates = [a for a in addresses if (families.ipv6 if ":" in a else families.ipv4)]
    return (
        tuple(a for a in candidates if (":" in a) is (":" in addresses[0]))
        if families.ipv4 and families.ipv6
        else tuple(candidates)
    )

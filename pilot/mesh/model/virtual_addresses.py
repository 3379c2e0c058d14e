"""The addresses that clients of a proxy use for a service."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.service import Registry, Service

ANY_IPV4 = "0.0.0.0"


class AddressFamiliesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """A proxy may meet a service's virtual addresses of these families: with `dual` those of both at once, with `auto` allocated ones. `cluster`
    is as in `Service.addresses_in`, "" for the default ones."""

    ipv4: bool = True
    ipv6: bool = False
    dual: bool = False
    auto: bool = False
    cluster: str = ""


def virtual_addresses(service: Service, families: AddressFamiliesFacet, one: bool) -> tuple[str, ...]:
    """Returns the addresses that a proxy's clients may use for a host name.

    Of those that a ServiceEntry lists only the last is used, whatever its family: istiod makes a service of each and keeps the
    last. `one`: of the allocated ones only the first of the proxy's families.
    """
    if service.registry is Registry.KUBERNETES:
        return _of_families(service.addresses_in(families.cluster), families)
    if service.addresses:
        return service.addresses[-1:]
    if not families.auto:
        return ()
    if not one:
        return _of_families(service.auto_addresses, families)
    usable = [
        a
        for v6 in (False, True)
        for a in service.auto_addresses
        if (":" in a) is v6 and (families.ipv6 if v6 else families.ipv4)
    ]
    return tuple(usable[:1])


def bound_addresses(service: Service, families: AddressFamiliesFacet) -> list[tuple[str, ...]]:
    """Returns the addresses at which a proxy meets a service, each with the further ones that belong to it; ANY_IPV4 for a service that has none.

    Each address of a ServiceEntry stands for itself; those of a Kubernetes Service are one address of several families.
    """
    if service.registry is Registry.EXTERNAL and service.addresses:
        return [(a,) for a in service.addresses]
    own = given = service.addresses_in(families.cluster)
    if not own and families.auto:
        given = tuple(sorted(service.auto_addresses, key=lambda a: ":" in a))
    usable = tuple(a for a in given if (families.ipv6 if ":" in a else families.ipv4))
    if families.ipv4 and families.ipv6:
        usable = tuple(a for a in usable if (":" in a) is (":" in usable[0]))
    if not usable:
        return [(own[0] if own else ANY_IPV4,)]
    return [(usable[0], *(given if families.dual else usable)[1:])]


def _of_families(addresses: tuple[str, ...], families: AddressFamiliesFacet) -> tuple[str, ...]:
    """Returns the addresses of the proxy's family; where it has both, those of the first address's family, or all of them if `dual`."""
    if families.dual:
        return addresses
    usable = [a for a in addresses if (families.ipv6 if ":" in a else families.ipv4)]
    return (
        tuple(a for a in usable if (":" in a) is (":" in addresses[0]))
        if families.ipv4 and families.ipv6
        else tuple(usable)
    )

"""The virtual addresses of services that the clients of a proxy use."""

from __future__ import annotations

import msgspec

from pilot.mesh.model.service import Registry, Service

ANY_IPV4 = "0.0.0.0"


class AddressFamiliesFacet(msgspec.Struct, frozen=True, cache_hash=True):
    """The IP families of the virtual addresses that a proxy uses.

    With `dual`, the proxy uses both families of a service at once. With `auto`, it uses allocated addresses. `cluster`
    is the argument of `Service.addresses_in`, or "" for the default addresses.
    """

    ipv4: bool = True
    ipv6: bool = False
    dual: bool = False
    auto: bool = False
    cluster: str = ""


def virtual_addresses(service: Service, families: AddressFamiliesFacet, single: bool) -> tuple[str, ...]:
    """Return the addresses that a proxy's clients may use for a hostname.

    If a ServiceEntry lists addresses, only the last one is used, because istiod creates a service for each address and
    keeps the last. Addresses in a family of the proxy take precedence. With `single`, only the first allocated address
    in a family of the proxy is used.
    """
    if service.registry is Registry.KUBERNETES:
        return _of_families(service.addresses_in(families.cluster), families)
    if service.addresses:
        usable = [a for a in service.addresses if (families.ipv6 if ":" in a else families.ipv4)]
        return (*service.addresses, *usable)[-1:]
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
    """Return the addresses on which a proxy listens for a service, each with its additional addresses.

    If the service has no address, the result is ANY_IPV4. Each address of a ServiceEntry is separate. The addresses of
    a Kubernetes Service are treated as one address in several families.
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
    """Return the addresses in the families of the proxy.

    If the proxy has both families, these are the addresses in the family of the first address or, with `dual`, all
    addresses.
    """
    if families.dual:
        return addresses
    candidates = [a for a in addresses if (families.ipv6 if ":" in a else families.ipv4)]
    return (
        tuple(a for a in candidates if (":" in a) is (":" in addresses[0]))
        if families.ipv4 and families.ipv6
        else tuple(candidates)
    )

"""Lists the domains of a service's virtual host: every way in which a client may write its name in a Host header.

A client in Kubernetes leaves out what its resolver's search list adds: `reviews` and `reviews.prod` mean
`reviews.prod.svc.cluster.local` to a pod of namespace `prod`, `reviews.prod` to others.
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pilot.lib.addresses import is_ip
from pilot.lib.hosts import bracketed
from pilot.mesh.model.service import Registry, Resolution, Service
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet, virtual_addresses

_MARK = ".svc."


class Domains(NamedTuple):
    """Holds the domains in order; `short` are those that were derived: the names of other services come before them."""

    names: tuple[str, ...]
    short: frozenset[str]


def build_domains(
    service: Service,
    aliases: tuple[str, ...],
    dns_domain: str,
    families: AddressFamiliesFacet,
    absolute: bool,
    port: int = 0,
) -> Domains:
    """Returns the names that clients of a DNS domain use. `absolute`: names with the final dot too. `port`: add `name:port` to each; 0: do not."""
    names: list[str] = []
    short: list[str] = []
    for hostname in (service.hostname.lower(), *aliases):
        variants = [*absolute_names(hostname, absolute), *short_names(hostname, dns_domain)]
        names += [bracketed(hostname), *variants]
        short += variants
    if service.resolution is Resolution.PASSTHROUGH and service.registry is Registry.KUBERNETES:
        names += [f"*.{name}" for name in names]  # the pods of a headless service
    names += [bracketed(a) for a in virtual_addresses(service, families, port == 0)]
    if port:
        names = [n for name in names for n in (name, f"{name}:{port}")]
        short = [n for name in short for n in (name, f"{name}:{port}")]
    return Domains(tuple(dict.fromkeys(names)), frozenset(short))


def absolute_names(hostname: str, wanted: bool) -> tuple[str, ...]:
    """Returns the name as resolvers that search nothing write it, where that is wanted."""
    return (f"{hostname}.",) if wanted and not is_ip(hostname) else ()


def short_names(hostname: str, dns_domain: str) -> tuple[str, ...]:
    """Returns what is left of a name in a DNS domain.

    Names of Kubernetes services are shortened for Kubernetes clients alone: `ns.svc.suffix` is the domain of one.
    """
    own, mark, suffix = dns_domain.partition(_MARK)
    if not mark:
        return _shared_suffix(hostname, dns_domain)
    if not hostname.endswith(_MARK + suffix):
        return ()
    name, _, _ = hostname.partition(_MARK)
    first, dot, namespace = name.partition(".")
    if not name or not dot:
        return ()
    return (first, f"{name}.svc", name) if namespace == own else (name, f"{name}.svc")


def _shared_suffix(hostname: str, dns_domain: str) -> tuple[str, ...]:
    """Returns, outside of Kubernetes, the parts that the two do not share, and with one shared part more."""
    parts, others = hostname.split("."), dns_domain.split(".")
    shared = 0
    while shared < min(len(parts), len(others)) and parts[-1 - shared] == others[-1 - shared]:
        shared += 1
    if not shared:
        return ()
    unique = parts[: len(parts) - shared]
    name = ".".join(unique)
    return (name, f"{name}.{parts[len(unique)]}") if len(unique) == 2 else (name,)


def kubernetes_namespace(hostname: str) -> str:
    """Returns the namespace in the name of a Kubernetes service, "" for other names."""
    name, mark, _ = hostname.partition(_MARK)
    return name.partition(".")[2] if mark else ""


def without_namespace(dns_domain: str) -> str:
    """Returns the DNS domain of clients of no namespace in particular."""
    _, mark, suffix = dns_domain.partition(_MARK)
    return mark + suffix if mark else dns_domain


def relevant_dns_domain(dns_domain: str, hostname: str) -> str:
    """Returns the DNS domain as far as it matters to the names of one host: clients of other namespaces are alike."""
    own = dns_domain.partition(_MARK)[0]
    return dns_domain if kubernetes_namespace(hostname) == own else without_namespace(dns_domain)


DEFAULT_PORT = 80
NAMESPACE_MARK = "@"  # before the namespace whose clients alone may use a short name


class DomainClaim(NamedTuple):
    """Holds a host and port, and the domains that it would have. `service`: its name is one that no other host may take for a short name."""

    key: tuple[str, int]
    service: bool
    domains: Domains


def resolve_conflicts(
    contenders: Iterable[DomainClaim], contested: frozenset[str] | None
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Returns what each has to do without: the first that wants a domain has it, a short name yields to the service of that very name.

    `contested`: the domains (in lower case) to settle. None: all of them, of a listener of all ports, where in addition names
    without a port are those of port 80.
    """
    all_contenders = list(contenders)
    known = {name for c in all_contenders if c.service for name in (c.key[0], f"{c.key[0]}:{c.key[1]}")}
    taken: set[str] = set()
    out: dict[tuple[str, int], tuple[str, ...]] = {}
    for key, _, domains in all_contenders:
        dropped: dict[str, None] = {}
        for name in domains.names:
            lower = name.lower()
            if contested is not None and lower not in contested and NAMESPACE_MARK not in lower:
                continue
            if lower in taken or (name in domains.short and name in known):
                dropped[name.partition(NAMESPACE_MARK)[0]] = None
            else:
                taken.add(lower)
        if contested is None and key[1] != DEFAULT_PORT:
            dropped |= dict.fromkeys(name for name in domains.names if ":" not in name)
        if dropped:
            out[key] = tuple(dropped)
    return out

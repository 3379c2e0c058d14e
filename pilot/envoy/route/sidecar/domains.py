"""Domains of virtual hosts: every form of a service's name in a Host header, and conflicts between virtual hosts.

Clients in Kubernetes omit the parts of a name that their resolver's search list adds. For a Pod in namespace `prod`,
both `reviews` and `reviews.prod` mean `reviews.prod.svc.cluster.local`. For other Pods, only `reviews.prod` does.
https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from pilot.lib.addresses import is_ip
from pilot.lib.hosts import bracketed
from pilot.mesh.model.service import Registry, Resolution, Service
from pilot.mesh.model.virtual_addresses import AddressFamiliesFacet, virtual_addresses

_SVC_MARK = ".svc."


class Domains(NamedTuple):
    """The domains of a virtual host, in order.

    `short` has the derived names. They give way to the names of other services.
    """

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
    """Return the domains of a service for clients in a DNS domain.

    If `absolute` is set, names with a trailing dot are included. If `port` is not 0, each name is also included as
    "name:port".
    """
    names: list[str] = []
    short: list[str] = []
    for hostname in (service.hostname.lower(), *aliases):
        variants = [*absolute_names(hostname, absolute), *short_names(hostname, dns_domain)]
        names += [bracketed(hostname), *variants]
        short += variants
    if service.resolution is Resolution.PASSTHROUGH and service.registry is Registry.KUBERNETES:
        names += [f"*.{name}" for name in names]  # pods of a headless service
    names += [bracketed(a) for a in virtual_addresses(service, families, port == 0)]
    if port:
        names = [n for name in names for n in (name, f"{name}:{port}")]
        short = [n for name in short for n in (name, f"{name}:{port}")]
    return Domains(tuple(dict.fromkeys(names)), frozenset(short))


def absolute_names(hostname: str, enabled: bool) -> tuple[str, ...]:
    """Return the name with a trailing dot, or () if `enabled` is not set or the name is an IP address.

    Resolvers do not apply their search list to absolute names.
    """
    return (f"{hostname}.",) if enabled and not is_ip(hostname) else ()


def short_names(hostname: str, dns_domain: str) -> tuple[str, ...]:
    """Return the short forms of a name in a DNS domain.

    Only Kubernetes clients, whose DNS domain is "namespace.svc.suffix", shorten the names of Kubernetes services.
    """
    client_namespace, mark, suffix = dns_domain.partition(_SVC_MARK)
    if not mark:
        return _shared_suffix(hostname, dns_domain)
    if not hostname.endswith(_SVC_MARK + suffix):
        return ()
    name, _, _ = hostname.partition(_SVC_MARK)
    first, dot, namespace = name.partition(".")
    if not name or not dot:
        return ()
    return (first, f"{name}.svc", name) if namespace == client_namespace else (name, f"{name}.svc")


def _shared_suffix(hostname: str, dns_domain: str) -> tuple[str, ...]:
    """Return the short forms of a name for clients outside Kubernetes.

    They are the name without the suffix that it shares with the DNS domain and, if two parts remain, these parts
    followed by the first part of the suffix.
    """
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
    """Return the namespace in the host name of a Kubernetes service, or "" for other host names."""
    name, mark, _ = hostname.partition(_SVC_MARK)
    return name.partition(".")[2] if mark else ""


@lru_cache(maxsize=256)
def without_namespace(dns_domain: str) -> str:
    """Return the DNS domain without the client's namespace."""
    _, mark, suffix = dns_domain.partition(_SVC_MARK)
    return mark + suffix if mark else dns_domain


def relevant_dns_domain(dns_domain: str, hostname: str) -> str:
    """Return the part of the DNS domain that affects the domains of a host.

    All clients outside the service's namespace use the same names.
    """
    client_namespace = dns_domain.partition(_SVC_MARK)[0]
    return dns_domain if kubernetes_namespace(hostname) == client_namespace else without_namespace(dns_domain)


DEFAULT_PORT = 80
NAMESPACE_MARK = "@"  # precedes the only namespace whose clients may use a short name


class DomainClaim(NamedTuple):
    """A virtual host's claim to its domains.

    `service` is set if the virtual host belongs to a service. No other virtual host may use the service's name as a
    short name.
    """

    key: tuple[str, int]
    service: bool
    domains: Domains


def resolve_conflicts(
    claims: Iterable[DomainClaim], contested: frozenset[str] | None
) -> Mapping[tuple[str, int], tuple[str, ...]]:
    """Return the domains that each claim loses. Envoy rejects a configuration with duplicate domains.

    The first claim to a domain wins, but a short name gives way to the service with that name. `contested` has the
    domains to resolve, in lower case. If it is None, all domains are resolved for a listener for all ports, where names
    without a port belong to port 80.
    """
    all_claims = list(claims)
    service_names = {name for c in all_claims if c.service for name in (c.key[0], f"{c.key[0]}:{c.key[1]}")}
    claimed_names: set[str] = set()
    lost_domains: dict[tuple[str, int], tuple[str, ...]] = {}
    for key, _, domains in all_claims:
        lost: dict[str, None] = {}
        for name in domains.names:
            lower = name.lower()
            if contested is not None and lower not in contested and NAMESPACE_MARK not in lower:
                continue
            if lower in claimed_names or (name in domains.short and name in service_names):
                lost[name.partition(NAMESPACE_MARK)[0]] = None
            else:
                claimed_names.add(lower)
        if contested is None and key[1] != DEFAULT_PORT:
            lost |= dict.fromkeys(name for name in domains.names if ":" not in name)
        if lost:
            lost_domains[key] = tuple(lost)
    return lost_domains

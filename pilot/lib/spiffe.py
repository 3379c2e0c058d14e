"""SPIFFE identities: `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PREFIX = "spiffe://"


class Identity(NamedTuple):
    """The parts of a SPIFFE identity."""

    trust_domain: str
    namespace: str
    service_account: str


def parse_identity(text: str) -> Identity | None:
    """Return the parts of a SPIFFE identity, or None if the string is not one."""
    trust_domain, *path = text.removeprefix(PREFIX).split("/")
    if (
        not text.startswith(PREFIX)
        or len(path) != 4
        or not (trust_domain and path[1] and path[3])
        or (path[0], path[2]) != ("ns", "sa")
    ):
        return None
    return Identity(trust_domain, path[1], path[3])


def identity(trust_domain: str, namespace: str, service_account: str) -> str:
    """Return the SPIFFE identity of a service account.

    "@" in a trust domain is replaced with ".". Trust domains of GCP projects can contain it.
    """
    return f"{PREFIX}{trust_domain.replace('@', '.')}/ns/{namespace}/sa/{service_account}"


def in_trust_domains(identities: Iterable[str], trust_domains: Iterable[str]) -> set[str]:
    """Return the identities, and a copy of each SPIFFE identity for every trust domain."""
    domains = tuple(trust_domains)
    out = set(identities)
    for one in tuple(out):
        if one.startswith(PREFIX):
            path = one[len(PREFIX) :].partition("/")[2]
            out.update(f"{PREFIX}{domain}/{path}" for domain in domains)
    return out

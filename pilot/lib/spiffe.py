"""SPIFFE identities: `spiffe://<trust domain>/ns/<namespace>/sa/<service account>`."""
from __future__ import annotations

from collections.abc import Iterable

PREFIX = "spiffe://"


def identity(trust_domain: str, namespace: str, service_account: str) -> str:
    """The identity of a service account; "@" of a trust domain made from a GCP project is written "."."""
    return f"{PREFIX}{trust_domain.replace('@', '.')}/ns/{namespace}/sa/{service_account}"


def in_trust_domains(identities: Iterable[str], trust_domains: Iterable[str]) -> set[str]:
    """The identities, and each of them as the other trust domains name it. What is no SPIFFE identity stays alone."""
    domains = tuple(trust_domains)
    out = set(identities)
    for one in tuple(out):
        if one.startswith(PREFIX):
            path = one[len(PREFIX):].partition("/")[2]
            out.update(f"{PREFIX}{domain}/{path}" for domain in domains)
    return out

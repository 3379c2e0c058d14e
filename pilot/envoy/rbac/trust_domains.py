"""Names principals in every trust domain of the mesh: one that is meant in one of them is meant in its aliases too.

https://istio.io/latest/docs/tasks/security/authorization/authz-td-migration/
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LOCAL = "cluster.local"  # stands for the trust domain of the mesh, whatever it is
_PARTS = 5  # DOMAIN/ns/NAMESPACE/sa/ACCOUNT


def in_all_domains(principals: Iterable[str], domains: Sequence[str]) -> list[str]:
    """Returns the principals, each of them in all trust domains of the mesh if it is in one of them; those of foreign domains, and what is no
    whole principal, as they are."""
    found: list[str] = []
    for principal in principals:
        domain, *rest = principal.split("/")
        if len(rest) != _PARTS - 1 or domain == "*" or not _is_known(domain, domains):
            found.append(principal)
            continue
        named = (principal if _ends_as(known, domain) else "/".join((known, *rest)) for known in domains)
        found.extend(dict.fromkeys(named))
    return found


def with_aliases(values: Iterable[str], domains: Sequence[str]) -> list[str]:
    """Returns trust domains, and with one of the mesh its others."""
    return list(dict.fromkeys(domain for value in values for domain in (domains if value in domains else (value,))))


def _is_known(domain: str, domains: Iterable[str]) -> bool:
    return domain == LOCAL or any(
        domain == known or _covers(domain, known) or _covers(known, domain) for known in domains
    )


def _covers(pattern: str, domain: str) -> bool:
    return pattern == "*" or _ends_as(domain, pattern) or (pattern.endswith("*") and domain.startswith(pattern[:-1]))


def _ends_as(domain: str, pattern: str) -> bool:
    return pattern.startswith("*") and domain.endswith(pattern[1:])

"""Builds principals, which match the client's certificate and address, and the request's token and headers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envoy.config.rbac.v3 import rbac_pb2
from envoy.type.matcher.v3 import filter_state_pb2, string_pb2

from pilot.config.security.authorization_policy import Condition, Source
from pilot.envoy.filter_state import PEER_PRINCIPAL
from pilot.envoy.rbac.rule_field import Build, RbacField, build_fields, each, inexpressible
from pilot.envoy.rbac.string_matchers import ANY, build_header, build_regex, build_text, quote
from pilot.envoy.rbac.token_principal import any_of, build_claim, build_request_principals
from pilot.envoy.well_known_types import build_cidr
from pilot.lib.spiffe import PREFIX

Principal = rbac_pb2.Principal
ANYBODY, NOBODY = Principal(any=True), Principal(not_id=Principal(any=True))
HEADERS, CLAIMS = "request.headers", "request.auth.claims"
_HEADER_NAME = re.compile(r":?[-!#$%&'*+.^_`|~0-9A-Za-z]+", re.ASCII)
_BRACKETS = re.compile(r"(?:\[[^\[\]]*\])+")


class RuleContext(NamedTuple):
    """The context of a rule: its policy's namespace, the mesh's trust domains, and whether it applies to TCP.

    `tunnelled` is set if the client's identity was recorded when the tunnel was terminated.
    """

    namespace: str
    trust_domains: tuple[str, ...]
    tcp: bool
    tunnelled: bool = False


def build_principal(
    source: Source | None, when: Iterable[Condition], context: RuleContext, allows: bool
) -> rbac_pb2.Principal | None:
    """Return the principal for one source with its conditions.

    See `build_fields` for conditions that cannot be expressed.
    """
    builders = _builders(context)
    fields = [
        *_source_fields(source or Source(), builders),
        *(_condition_field(condition, builders, context) for condition in when),
    ]
    principals = build_fields(fields, lambda m: Principal(not_id=m), allows)
    return None if principals is None else Principal(and_ids=Principal.Set(ids=principals or [ANYBODY]))


def _builders(context: RuleContext) -> Mapping[str, Build[rbac_pb2.Principal]]:
    """Return a mapping from attribute to the builder of its principals."""
    domains = context.trust_domains

    def by_name(build_name: Callable[[str], string_pb2.StringMatcher | None]) -> Build[rbac_pb2.Principal]:
        return _each(lambda value: _identity(build_name(value), context.tunnelled))

    principals, trust_domains = by_name(_principal), by_name(_trust_domain)

    def http(build: Build[rbac_pb2.Principal]) -> Build[rbac_pb2.Principal]:
        return inexpressible if context.tcp else build

    return {
        "source.principal": lambda values: principals(in_all_domains(values, domains)),
        "request.auth.principal": http(build_request_principals),
        "source.serviceAccount": by_name(lambda value: _service_account(value, context.namespace)),
        "source.trustDomain": lambda values: trust_domains(with_aliases(values, domains)),
        "source.namespace": by_name(_namespace),
        "remote.ip": _each(_remote_address),
        "source.ip": _each(_peer_address),
        "request.auth.audiences": http(lambda values: build_claim(("aud",), values)),
        "request.auth.presenter": http(lambda values: build_claim(("azp",), values)),
    }


def _source_fields(
    source: Source, builders: Mapping[str, Build[rbac_pb2.Principal]]
) -> Iterator[RbacField[rbac_pb2.Principal]]:
    yield RbacField(source.principals, source.not_principals, builders["source.principal"])
    yield RbacField(source.request_principals, source.not_request_principals, builders["request.auth.principal"])
    yield RbacField(source.service_accounts, source.not_service_accounts, builders["source.serviceAccount"])
    yield RbacField(source.trust_domains, source.not_trust_domains, builders["source.trustDomain"])
    yield RbacField(source.namespaces, source.not_namespaces, builders["source.namespace"])
    yield RbacField(source.remote_ip_blocks, source.not_remote_ip_blocks, builders["remote.ip"])
    yield RbacField(source.ip_blocks, source.not_ip_blocks, builders["source.ip"])


def _condition_field(
    condition: Condition, builders: Mapping[str, Build[rbac_pb2.Principal]], context: RuleContext
) -> RbacField[rbac_pb2.Principal]:
    """Return the field for a condition. An unknown attribute cannot be expressed."""
    key, build = condition.key, builders.get(condition.key, inexpressible)
    if key.startswith(HEADERS) and not context.tcp:
        name = key[len(HEADERS) :]
        build = (
            _each(lambda value: _header(name[1:-1], value))
            if name.startswith("[") and name.endswith("]")
            else inexpressible
        )
    elif key.startswith(CLAIMS) and not context.tcp:
        path = claim_path(key[len(CLAIMS) :])
        build = (lambda values: build_claim(path, values)) if path else inexpressible
    return RbacField(condition.values, condition.not_values, build)


def claim_path(text: str) -> tuple[str, ...]:
    """Return the path of a claim, outermost name first, from text of the form `[a][b]`.

    Brackets in any other position are part of a single name. The result is () if there is no name or a name is empty.
    """
    if _BRACKETS.fullmatch(text):
        names = tuple(text[1:-1].split("]["))
    else:
        names = (text[1:-1],) if text.startswith("[") and text.endswith("]") else ()
    return names if all(names) else ()


def _each(build_one: Callable[[str], rbac_pb2.Principal | None]) -> Build[rbac_pb2.Principal]:
    return each(build_one, any_of)


# -- attributes of the connection --------------------------------------------------------------------------------------


def _identity(name: string_pb2.StringMatcher | None, tunnelled: bool) -> rbac_pb2.Principal | None:
    """Return the principal for an identity, or None if `name` is None.

    The identity is that of the connection's certificate or, if `tunnelled` is set, the one recorded for its tunnel.
    """
    if name is None:
        return None
    if tunnelled:
        return Principal(filter_state=filter_state_pb2.FilterStateMatcher(key=PEER_PRINCIPAL, string_match=name))
    return Principal(authenticated=Principal.Authenticated(principal_name=name))


def _principal(value: str) -> string_pb2.StringMatcher | None:
    """Return the matcher for `DOMAIN/ns/NAMESPACE/sa/ACCOUNT`."""
    if value == ANY:
        return build_text(value)
    if value.startswith(ANY):
        return build_regex(f"{PREFIX}.*{quote(value[1:])}")
    return build_text(PREFIX + value)


def _service_account(value: str, namespace: str) -> string_pb2.StringMatcher | None:
    """Return the matcher for `ACCOUNT` or `NAMESPACE/ACCOUNT` in any trust domain. The default namespace is
    `namespace`."""
    account_namespace, slash, account = value.partition("/")
    if not slash:
        account_namespace, account = namespace, value
    return build_regex(f"{PREFIX}.+/ns/{quote(account_namespace)}/(.+/|)sa/{quote(account)}(/.+)?")


def _trust_domain(value: str) -> string_pb2.StringMatcher | None:
    if value == ANY:
        return string_pb2.StringMatcher(prefix=PREFIX)
    start, star, end = value.partition(ANY)
    if not star:
        return string_pb2.StringMatcher(prefix=f"{PREFIX}{value}/")
    return build_regex(f"{PREFIX}{quote(start)}[^/]*{quote(end)}/.*")


def _namespace(value: str) -> string_pb2.StringMatcher | None:
    pattern = ".*".join(map(quote, value.split(ANY)))
    return build_regex(f".*/ns/{pattern}/.*")


def _remote_address(value: str) -> rbac_pb2.Principal | None:
    """Return the principal for the client address that trusted proxies report."""
    cidr = build_cidr(value)
    return Principal(remote_ip=cidr) if cidr is not None else None


def _peer_address(value: str) -> rbac_pb2.Principal | None:
    cidr = build_cidr(value)
    return Principal(direct_remote_ip=cidr) if cidr is not None else None


def _header(name: str, value: str) -> rbac_pb2.Principal | None:
    return Principal(header=build_header(name, value)) if _HEADER_NAME.fullmatch(name) else None


# -- trust domains -----------------------------------------------------------------------------------------------------

LOCAL = "cluster.local"  # stands for the trust domain of the mesh
_PARTS = 5  # DOMAIN/ns/NAMESPACE/sa/ACCOUNT


def in_all_domains(principals: Iterable[str], domains: Sequence[str]) -> list[str]:
    """Return the principals, with those in the mesh's trust domains repeated for each of these trust domains.

    Incomplete principals and principals in foreign trust domains are returned unchanged.
    """
    result: list[str] = []
    for principal in principals:
        domain, *path = principal.split("/")
        if len(path) != _PARTS - 1 or domain == "*" or not _is_of_mesh(domain, domains):
            result.append(principal)
            continue
        variants = (
            principal if _matches_suffix(mesh_domain, domain) else "/".join((mesh_domain, *path))
            for mesh_domain in domains
        )
        result.extend(dict.fromkeys(variants))
    return result


def with_aliases(values: Iterable[str], domains: Sequence[str]) -> list[str]:
    """Return the trust domains. If one of them belongs to the mesh, include all of the mesh's trust domains."""
    return list(dict.fromkeys(domain for value in values for domain in (domains if value in domains else (value,))))


def _is_of_mesh(domain: str, domains: Iterable[str]) -> bool:
    return domain == LOCAL or any(
        domain == mesh_domain or _covers(domain, mesh_domain) or _covers(mesh_domain, domain) for mesh_domain in domains
    )


def _covers(pattern: str, domain: str) -> bool:
    return (
        pattern == "*"
        or _matches_suffix(domain, pattern)
        or (pattern.endswith("*") and domain.startswith(pattern[:-1]))
    )


def _matches_suffix(domain: str, pattern: str) -> bool:
    return pattern.startswith("*") and domain.endswith(pattern[1:])

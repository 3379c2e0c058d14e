"""Builds principals: who asks, by the certificate of the connection, its address, and the token and the headers of the request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from envoy.config.rbac.v3 import rbac_pb2
from envoy.type.matcher.v3 import filter_state_pb2, string_pb2

from pilot.config.security.authorization_policy import Condition, Source
from pilot.envoy.filter_state import PEER_PRINCIPAL
from pilot.envoy.rbac.rule_field import Build, RbacField, build_fields, each, unsayable
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
    """Says where a rule stands: the namespace of its policy, the trust domains of the mesh, and whether it is for TCP. `tunnelled`: who a connection
    is from was noted where its tunnel ended."""

    namespace: str
    trust_domains: tuple[str, ...]
    tcp: bool
    tunnelled: bool = False


def build_principal(
    source: Source | None, when: Iterable[Condition], place: RuleContext, allows: bool
) -> rbac_pb2.Principal | None:
    """Returns the principal of one source under the conditions that are about who asks; None for one that cannot be said whole (`allows`,
    as in `build_fields`)."""
    builders = _builders(place)
    fields = [
        *_source_fields(source or Source(), builders),
        *(_condition_field(condition, builders, place) for condition in when),
    ]
    found = build_fields(fields, lambda m: Principal(not_id=m), allows)
    return None if found is None else Principal(and_ids=Principal.Set(ids=found or [ANYBODY]))


def _builders(place: RuleContext) -> Mapping[str, Build[rbac_pb2.Principal]]:
    """Returns the builder of each attribute."""
    domains = place.trust_domains

    def named(one: Callable[[str], string_pb2.StringMatcher | None]) -> Build[rbac_pb2.Principal]:
        return _each(lambda value: _identified(one(value), place.tunnelled))

    principals, trust_domains = named(_principal), named(_trust_domain)

    def http(build: Build[rbac_pb2.Principal]) -> Build[rbac_pb2.Principal]:
        return unsayable if place.tcp else build

    return {
        "source.principal": lambda values: principals(in_all_domains(values, domains)),
        "request.auth.principal": http(build_request_principals),
        "source.serviceAccount": named(lambda value: _service_account(value, place.namespace)),
        "source.trustDomain": lambda values: trust_domains(with_aliases(values, domains)),
        "source.namespace": named(_namespace),
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
    condition: Condition, builders: Mapping[str, Build[rbac_pb2.Principal]], place: RuleContext
) -> RbacField[rbac_pb2.Principal]:
    """Returns the field of a condition; of an attribute that there is not, one that cannot be said."""
    key, build = condition.key, builders.get(condition.key, unsayable)
    if key.startswith(HEADERS) and not place.tcp:
        name = key[len(HEADERS) :]
        build = (
            _each(lambda value: _header(name[1:-1], value))
            if name.startswith("[") and name.endswith("]")
            else unsayable
        )
    elif key.startswith(CLAIMS) and not place.tcp:
        path = claim_path(key[len(CLAIMS) :])
        build = (lambda values: build_claim(path, values)) if path else unsayable
    return RbacField(condition.values, condition.not_values, build)


def claim_path(text: str) -> tuple[str, ...]:
    """Returns the names of a claim and of those that it is in: `[a][b]`; of what is bracketed in no such way the one name `[…]` has, and ()
    where that is none or a name is empty."""
    if _BRACKETS.fullmatch(text):
        names = tuple(text[1:-1].split("]["))
    else:
        names = (text[1:-1],) if text.startswith("[") and text.endswith("]") else ()
    return names if all(names) else ()


def _each(one: Callable[[str], rbac_pb2.Principal | None]) -> Build[rbac_pb2.Principal]:
    return each(one, any_of)


# -- who a connection is from ----------------------------------------------------------------------------------------------


def _identified(name: string_pb2.StringMatcher | None, tunnelled: bool) -> rbac_pb2.Principal | None:
    """Returns the principal of an identity: of the connection's certificate, or as it was noted of the tunnel that the connection came out of."""
    if name is None:
        return None
    if tunnelled:
        return Principal(filter_state=filter_state_pb2.FilterStateMatcher(key=PEER_PRINCIPAL, string_match=name))
    return Principal(authenticated=Principal.Authenticated(principal_name=name))


def _principal(value: str) -> string_pb2.StringMatcher | None:
    """Returns the principal of `DOMAIN/ns/NAMESPACE/sa/ACCOUNT`."""
    if value == ANY:
        return build_text(value)
    if value.startswith(ANY):
        return build_regex(f"{PREFIX}.*{quote(value[1:])}")
    return build_text(PREFIX + value)


def _service_account(value: str, namespace: str) -> string_pb2.StringMatcher | None:
    """Returns the principal of `ACCOUNT` of the policy's own namespace, or of `NAMESPACE/ACCOUNT`, in any trust domain."""
    where, slash, account = value.partition("/")
    if not slash:
        where, account = namespace, value
    return build_regex(f"{PREFIX}.+/ns/{quote(where)}/(.+/|)sa/{quote(account)}(/.+)?")


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
    """Returns the principal of the client, as trusted proxies on the way tell of it."""
    cidr = build_cidr(value)
    return Principal(remote_ip=cidr) if cidr is not None else None


def _peer_address(value: str) -> rbac_pb2.Principal | None:
    cidr = build_cidr(value)
    return Principal(direct_remote_ip=cidr) if cidr is not None else None


def _header(name: str, value: str) -> rbac_pb2.Principal | None:
    return Principal(header=build_header(name, value)) if _HEADER_NAME.fullmatch(name) else None


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

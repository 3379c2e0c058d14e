"""The JWT rules of a workload, and the keys that verify the tokens.

https://istio.io/latest/docs/reference/config/security/request_authentication/
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from urllib.parse import urlsplit

import msgspec

from pilot.config.kinds.istio import REQUEST_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.security.request_authentication import MOST_RULES, JwksSource, JWTRule, jwks_source
from pilot.derive import derived, hub
from pilot.mesh.registry.mesh_services import find_service
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config

_PORTS = {"http": 80, "https": 443}
_HYBRID, _ENVOY = ("true", "hybrid"), ("envoy",)


class JwksServer(msgspec.Struct, frozen=True):
    """A service from which proxies themselves fetch a key set."""

    hostname: str
    port: int


class TokenRule(msgspec.Struct, frozen=True):
    """A JWT rule, with the keys of its issuer or with the server from which proxies fetch the keys.

    `keys` is "" if the keys are unknown.
    """

    rule: JWTRule
    keys: str = ""
    server: JwksServer | None = None


@derived
def token_rules(db: Mesh, policies: tuple[ObjectKey, ...]) -> tuple[TokenRule, ...]:
    """Return the rules of RequestAuthentications that apply together, sorted by issuer.

    For equal issuers, rules from the workload's namespace precede those from the root namespace. Rules beyond
    `MOST_RULES` are omitted. Rules whose key sets exceed the limit in total have no keys, so all their tokens are
    rejected.
    """
    root = mesh_config(db).root_namespace
    rules = [(key, rule) for key, _, rule, _ in _limited_rules(db, policies, root)]
    return tuple(rule for _, rule in sorted(rules, key=lambda item: (item[1].rule.issuer, item[0].namespace == root)))


@derived
def excess_rules(db: Mesh, policies: tuple[ObjectKey, ...]) -> tuple[tuple[ObjectKey, int, bool], ...]:
    """Return the rules of RequestAuthentications that exceed the limits if they apply together.

    Each has its policy, its index and True if it is omitted. The others have no keys.
    """
    excess: list[tuple[ObjectKey, int, bool]] = []
    limited: Counter[ObjectKey] = Counter()
    for key, index, _, is_excess in _limited_rules(db, policies, mesh_config(db).root_namespace):
        limited[key] += 1
        if is_excess:
            excess.append((key, index, False))
    for key in policies:
        row = REQUEST_AUTHENTICATION.get(db, key)
        count = len(row.spec.jwt_rules) if row is not None else 0
        excess += ((key, index, True) for index in range(limited[key], count))
    return tuple(excess)


def _limited_rules(
    db: Mesh, policies: tuple[ObjectKey, ...], root: str
) -> Iterator[tuple[ObjectKey, int, TokenRule, bool]]:
    """Yield the rules within the limits, each with its policy and index, and with True if it has no keys because the
    key sets are too large.

    Policies in the root namespace take precedence, so that those in other namespaces cannot use up the limits.
    """
    count, size = 0, db.settings.policies.largest_key_sets
    for key in sorted(policies, key=lambda key: key.namespace != root):
        row = REQUEST_AUTHENTICATION.get(db, key)
        for index, rule in enumerate(row.spec.jwt_rules[: MOST_RULES - count] if row is not None else ()):
            count += 1
            token_rule = _with_keys(db, rule)
            is_excess = len(token_rule.keys) > size
            if is_excess:
                token_rule = TokenRule(rule)
            size -= len(token_rule.keys)
            yield key, index, token_rule, is_excess


def _with_keys(db: Mesh, rule: JWTRule) -> TokenRule:
    if (server := _server(db, rule.jwks_uri)) is not None:
        return TokenRule(rule, server=server)
    source = jwks_source(rule)
    return TokenRule(rule, keys=rule.jwks if source is None else db.jwks.get(source.key) or "")


def _server(db: Mesh, uri: str) -> JwksServer | None:
    """Return the service from which proxies fetch a key set, or None if the control plane fetches it. Not memoised."""
    mode = db.settings.policies.remote_jwks
    if not uri or mode not in (*_HYBRID, *_ENVOY):
        return None
    parts = urlsplit(uri)
    hostname, port = parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)
    ref = find_service(db, hostname)
    if ref is not None:
        return JwksServer(ref.hostname, port)
    return JwksServer(hostname, port) if mode in _ENVOY else None


@hub
def remote_key_sets(db: Mesh) -> tuple[JwksSource, ...]:
    """Return the key sets that the control plane fetches."""
    return tuple(source for source in REQUEST_AUTHENTICATION.buckets(db, "jwks") if _server(db, source.key.uri) is None)

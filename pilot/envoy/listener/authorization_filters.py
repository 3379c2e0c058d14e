"""Derives the filters of AuthorizationPolicies.

External authorizers are asked first; then what audits, what denies and what allows has a filter each, so that a denial comes before any
permission. An edit of a policy builds that policy anew, and the filters of those that it applies to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, NamedTuple, TypeVar

from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import ObjectKey
from pilot.config.security.authorization_policy import Action, dry_run
from pilot.derive import derived
from pilot.envoy.ext_authz import SHADOW_PREFIX
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.http_authz import build_http_denial, build_http_ext_authz, build_http_rbac
from pilot.envoy.network_filter.network_authz import build_network_denial, build_network_ext_authz, build_network_rbac
from pilot.envoy.rbac.principal import RuleContext
from pilot.envoy.rbac.rbac_rules import (
    NEVER,
    ActionRules,
    BuiltAuthorization,
    build_action,
    build_rbac,
    build_rule,
    rule_name,
)
from pilot.mesh.security.authorizers import Authorizer, authorizer
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.trust import mesh_trust_domains

F = TypeVar("F")
PhasedHttpFilters = tuple[tuple[Phase, hcm_pb2.HttpFilter], ...]
PhasedNetworkFilters = tuple[tuple[Phase, listener_components_pb2.Filter], ...]
_BAD_AUTHORIZER = "-deny-due-to-bad-CUSTOM-action"
_LOCAL: tuple[Action, ...] = ("AUDIT", "DENY", "ALLOW")


@derived
def built_policy(db: Mesh, key: ObjectKey, tcp: bool, tunnelled: bool = False) -> BuiltAuthorization | None:
    """Returns a policy in Envoy's words, for connections (`tcp`) or requests, which may come out of tunnels; None for one that is gone."""
    row = AUTHORIZATION_POLICY.get(db, key)
    if row is None:
        return None
    spec, place = row.spec, RuleContext(row.namespace, mesh_trust_domains(db), tcp, tunnelled)
    provider = spec.provider.name if spec.action == "CUSTOM" and spec.provider is not None else ""
    built = (
        [NEVER] if not spec.rules else [build_rule(rule, place, allows=spec.action == "ALLOW") for rule in spec.rules]
    )
    rules = (
        (rule_name(row.namespace, row.name, index, provider), rule)
        for index, rule in enumerate(built)
        if rule is not None
    )
    return BuiltAuthorization(
        spec.action, tuple(rules), bool(dry_run(row.annotations)) and spec.action != "CUSTOM", provider
    )


@derived
def http_authorization(db: Mesh, policies: tuple[ObjectKey, ...], tunnelled: bool = False) -> PhasedHttpFilters:
    """Returns the filters of requests, each with its phase, by the keys of the policies that apply."""
    built = built_policies(db, policies, False, tunnelled)
    custom = [(Phase.EXTERNAL_AUTHZ, f) for f in _custom_filters(db, built, _REQUESTS)]
    return *custom, *((Phase.AUTHZ, f) for f in _local_filters(built, build_http_rbac))


@derived
def network_authorization(db: Mesh, policies: tuple[ObjectKey, ...], tunnelled: bool = False) -> PhasedNetworkFilters:
    """Returns the filters of connections, each with its phase, by the keys of the policies that apply."""
    built = built_policies(db, policies, True, tunnelled)
    custom = [(Phase.EXTERNAL_AUTHZ, f) for f in _custom_filters(db, built, _CONNECTIONS)]
    return *custom, *((Phase.AUTHZ, f) for f in _local_filters(built, build_network_rbac))


@derived
def tunnel_authorization(db: Mesh, policies: tuple[ObjectKey, ...]) -> tuple[hcm_pb2.HttpFilter, ...]:
    """Returns the filters of tunnels as they are opened: what the policies say of connections, as filters of requests, which can answer."""
    return tuple(_local_filters(built_policies(db, policies, tcp=True), build_http_rbac))


def built_policies(
    db: Mesh, policies: tuple[ObjectKey, ...], tcp: bool = False, tunnelled: bool = False
) -> list[BuiltAuthorization]:
    """Returns the policies of some keys in Envoy's words, for connections (`tcp`) or requests. No node of its own."""
    return [built for key in policies if (built := built_policy(db, key, tcp, tunnelled)) is not None]


def _local_filters(policies: list[BuiltAuthorization], build: Callable[[ActionRules], F]) -> Iterator[F]:
    """Yields a filter for each action that is decided in the proxy itself."""
    for action in _LOCAL:
        if (rules := build_action(action, policies)) is not None:
            yield build(rules)


# -- external authorizers --------------------------------------------------------------------------------------------------


class _Level(NamedTuple, Generic[F]):
    """Holds what builds filters of requests, or of connections: of rules that note what they match, of rules that deny, and of an authorizer,
    None for one that cannot be asked there."""

    notes: Callable[[ActionRules], F]
    denies: Callable[[rbac_pb2.RBAC], F]
    asks: Callable[[str, Authorizer], F | None]


def _ask_about_connections(provider: str, found: Authorizer) -> listener_components_pb2.Filter | None:
    return build_network_ext_authz(provider, found.grpc, found.port, found.hostname) if found.grpc is not None else None


_REQUESTS = _Level(build_http_rbac, build_http_denial, build_http_ext_authz)
_CONNECTIONS = _Level(build_network_rbac, build_network_denial, _ask_about_connections)


def _custom_filters(db: Mesh, policies: list[BuiltAuthorization], level: _Level[F]) -> Iterator[F]:
    """Yields the filters of authorizers. Where one cannot be asked, or where there are several and the settings allow one only, what would
    be asked about is denied."""
    custom = [policy for policy in policies if policy.action == "CUSTOM"]
    providers = sorted({policy.provider for policy in custom})
    too_many = len(providers) > 1 and not db.settings.policies.several_authorizers
    for provider in providers:
        own = [policy for policy in custom if policy.provider == provider]
        found = authorizer(db, provider)
        if too_many or isinstance(found, str):
            yield level.denies(build_rbac("CUSTOM", own, _BAD_AUTHORIZER))
        elif (asking := level.asks(provider, found)) is not None:
            yield level.notes(ActionRules(None, build_rbac("CUSTOM", own), SHADOW_PREFIX))
            yield asking

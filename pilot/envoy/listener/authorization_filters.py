"""Filters for AuthorizationPolicies.

External authorizers come first. They are followed by one filter for each of the actions AUDIT, DENY and ALLOW, so that
a denial takes precedence. A change to a policy only recompiles that policy, and rebuilds the filters of the workloads
to which it applies.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Generic, NamedTuple, TypeVar

from envoy.config.listener.v3 import listener_components_pb2
from envoy.config.rbac.v3 import rbac_pb2
from envoy.extensions.filters.network.http_connection_manager.v3 import http_connection_manager_pb2 as hcm_pb2

from pilot.config.kinds.istio import AUTHORIZATION_POLICY
from pilot.config.object import ObjectKey
from pilot.config.security.authorization_policy import Action, dry_run
from pilot.derive import derived_in_steps
from pilot.envoy.filter_phase import Phase
from pilot.envoy.http_filter.http_authz import build_http_denial, build_http_ext_authz, build_http_rbac
from pilot.envoy.network_filter.network_authz import build_network_denial, build_network_ext_authz, build_network_rbac
from pilot.envoy.rbac.ext_authz import SHADOW_PREFIX
from pilot.envoy.rbac.principal import RuleContext
from pilot.envoy.rbac.rbac_rules import (
    NEVER,
    ActionRules,
    CompiledPolicy,
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
_INVALID_AUTHORIZER = "-deny-due-to-bad-CUSTOM-action"
_LOCAL: tuple[Action, ...] = ("AUDIT", "DENY", "ALLOW")


@derived_in_steps
def compiled_policy(
    db: Mesh, key: ObjectKey, tcp: bool, tunnelled: bool = False
) -> Generator[None, None, CompiledPolicy | None]:
    """Return the RBAC rules of a policy, or None if it does not exist.

    If `tcp` is set, the rules apply to connections instead of requests. `tunnelled` is set for connections that arrive
    in tunnels.
    """
    row = AUTHORIZATION_POLICY.get(db, key)
    if row is None:
        return None
    spec, context = row.spec, RuleContext(row.namespace, mesh_trust_domains(db), tcp, tunnelled)
    provider = spec.provider.name if spec.action == "CUSTOM" and spec.provider is not None else ""
    rules = [] if spec.rules else [NEVER]
    for spec_rule in spec.rules:
        rule = yield from build_rule(spec_rule, context, allows=spec.action == "ALLOW")
        rules.append(rule)
    named_rules = (
        (rule_name(row.namespace, row.name, index, provider), rule)
        for index, rule in enumerate(rules)
        if rule is not None
    )
    return CompiledPolicy(
        spec.action, tuple(named_rules), bool(dry_run(row.annotations)) and spec.action != "CUSTOM", provider
    )


@derived_in_steps
def http_authorization(
    db: Mesh, policies: tuple[ObjectKey, ...], tunnelled: bool = False
) -> Generator[None, None, PhasedHttpFilters]:
    """Return the filters that authorize requests under these policies, each with its phase."""
    compiled = compiled_policies(db, policies, False, tunnelled)
    custom = yield from _custom_filters(db, compiled, _HTTP)
    local = yield from _local_filters(compiled, build_http_rbac)
    return *((Phase.EXTERNAL_AUTHZ, item) for item in custom), *((Phase.AUTHZ, item) for item in local)


@derived_in_steps
def network_authorization(
    db: Mesh, policies: tuple[ObjectKey, ...], tunnelled: bool = False
) -> Generator[None, None, PhasedNetworkFilters]:
    """Return the filters that authorize connections under these policies, each with its phase."""
    compiled = compiled_policies(db, policies, True, tunnelled)
    custom = yield from _custom_filters(db, compiled, _NETWORK)
    local = yield from _local_filters(compiled, build_network_rbac)
    return *((Phase.EXTERNAL_AUTHZ, item) for item in custom), *((Phase.AUTHZ, item) for item in local)


@derived_in_steps
def tunnel_authorization(
    db: Mesh, policies: tuple[ObjectKey, ...]
) -> Generator[None, None, tuple[hcm_pb2.HttpFilter, ...]]:
    """Return the filters that authorize the CONNECT requests that open tunnels.

    They apply the policies' rules for connections. Because they are HTTP filters, they can send a response.
    """
    return tuple((yield from _local_filters(compiled_policies(db, policies, tcp=True), build_http_rbac)))


def compiled_policies(
    db: Mesh, policies: tuple[ObjectKey, ...], tcp: bool = False, tunnelled: bool = False
) -> list[CompiledPolicy]:
    """Return the RBAC rules of these policies. Not memoised."""
    return [policy for key in policies if (policy := compiled_policy(db, key, tcp, tunnelled)) is not None]


def _local_filters(policies: list[CompiledPolicy], build: Callable[[ActionRules], F]) -> Generator[None, None, list[F]]:
    """Return a filter for each action that needs no external authorizer."""
    filters = []
    for action in _LOCAL:
        rules = yield from build_action(action, policies)
        if rules is not None:
            filters.append(build(rules))
    return filters


# -- external authorizers ----------------------------------------------------------------------------------------------


class _Builders(NamedTuple, Generic[F]):
    """Functions that build the authorization filters, either for requests or for connections.

    `ext_authz` returns None if the authorizer does not support requests or connections, respectively.
    """

    rbac: Callable[[ActionRules], F]
    denial: Callable[[rbac_pb2.RBAC], F]
    ext_authz: Callable[[str, Authorizer], F | None]


def _network_ext_authz(provider: str, authorizer: Authorizer) -> listener_components_pb2.Filter | None:
    if authorizer.grpc is None:
        return None
    return build_network_ext_authz(provider, authorizer.grpc, authorizer.port, authorizer.hostname)


_HTTP = _Builders(build_http_rbac, build_http_denial, build_http_ext_authz)
_NETWORK = _Builders(build_network_rbac, build_network_denial, _network_ext_authz)


def _custom_filters(db: Mesh, policies: list[CompiledPolicy], builders: _Builders[F]) -> Generator[None, None, list[F]]:
    """Return the filters for external authorizers.

    Requests are denied if their authorizer is invalid, or if there are several authorizers and the settings allow only
    one.
    """
    custom = [policy for policy in policies if policy.action == "CUSTOM"]
    providers = sorted({policy.provider for policy in custom})
    filters: list[F] = []
    too_many = len(providers) > 1 and not db.settings.policies.several_authorizers
    for provider in providers:
        provider_policies = [policy for policy in custom if policy.provider == provider]
        authorizer_or_error = authorizer(db, provider)
        if too_many or isinstance(authorizer_or_error, str):
            filters.append(builders.denial((yield from build_rbac("CUSTOM", provider_policies, _INVALID_AUTHORIZER))))
        elif (ext_authz := builders.ext_authz(provider, authorizer_or_error)) is not None:
            shadow = yield from build_rbac("CUSTOM", provider_policies)
            filters += [builders.rbac(ActionRules(None, shadow, SHADOW_PREFIX)), ext_authz]
    return filters

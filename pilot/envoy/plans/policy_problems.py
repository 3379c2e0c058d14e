"""Reports policies that exceed a limit only together, or only because of the number of filter chains of a proxy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.kind import Kind
from pilot.config.kinds.istio import AUTHORIZATION_POLICY, GATEWAY, REQUEST_AUTHENTICATION
from pilot.config.object import ObjectKey
from pilot.config.problem import ObjectRef, Problem, Severity
from pilot.config.security.request_authentication import MOST_RULES
from pilot.derive import derived
from pilot.envoy.listener.gateway.gateway_listeners import denied_chains
from pilot.envoy.listener.inbound.inbound_listeners import denied_keys
from pilot.envoy.listener.policy_copies import FREE_COPY_BYTES, MAX_COPIED_BYTES, policy_size
from pilot.lib.text import human_size
from pilot.mesh.analysis.check import Check
from pilot.mesh.gateways.gateways import gateway_selection_key
from pilot.mesh.model.facets import ListeningFacet
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.proxies.classify import inbound_facet
from pilot.mesh.proxies.router import gateway_listeners_facet
from pilot.mesh.security.jwt import excess_rules
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.proxies import all_proxies, find_proxy

_KINDS = (AUTHORIZATION_POLICY, REQUEST_AUTHENTICATION)


@derived
def policy_problems(db: Mesh, node_id: str) -> tuple[Problem, ...]:
    """Return the problems of the policies that apply to a sidecar or router."""
    node_type = find_proxy(db, node_id).type
    if node_type is NodeType.SIDECAR:
        inbound = inbound_facet(db, node_id)
        return tuple(_check(db, inbound.listening, lambda: len(denied_keys(db, inbound))))
    if node_type is NodeType.ROUTER:
        selection, facet = gateway_selection_key(db, node_id), gateway_listeners_facet(db, node_id)
        denied = denied_chains(db, selection, facet)
        servers = sorted(dict.fromkeys(denied.values()))
        return (
            *_check(db, facet.listening, lambda: len(denied)),
            *(
                _problem(
                    GATEWAY.id,
                    key.gateway,
                    f"spec.servers[{key.position}]",
                    "requests to this server are denied, because the policies of the gateway are too large for the "
                    "number of servers in the namespace",
                )
                for key in servers
            ),
        )
    return ()


def _check(db: Mesh, listening: ListeningFacet, denied: Callable[[], int]) -> Iterator[Problem]:
    """Yield the problems of the policies on one side of a proxy. `denied` returns the number of denied chains."""
    tokens = listening.policies.of(REQUEST_AUTHENTICATION.id.name)
    if len(tokens) > 1:
        yield from _check_rules(db, tokens)
    if (size := policy_size(db, listening)) <= FREE_COPY_BYTES or not (count := denied()):
        return
    policies = [(kind, key) for kind in _KINDS for key in listening.policies.of(kind.id.name)]
    kind, key = max(policies, key=lambda policy: (_size(db, *policy), policy[1]))
    together = f"{len(policies)} policies that apply to the same workload" if len(policies) > 1 else "the policy"
    yield _problem(
        kind.id,
        key,
        "spec",
        f"{together} have a size of {human_size(size)}, which is too large for the number of ports: requests to "
        f"{count} of them are denied; all copies together are limited to {human_size(MAX_COPIED_BYTES)}, without the "
        f"first {human_size(FREE_COPY_BYTES)} of each; split the policies between workloads",
    )


def _check_rules(db: Mesh, policies: tuple[ObjectKey, ...]) -> Iterator[Problem]:
    """Yield a problem for each JWT rule that is omitted, or has no keys, because of the other policies."""
    largest = db.settings.policies.largest_key_sets
    alone = {(key, index) for key in policies for key, index, _ in excess_rules(db, (key,))}
    for key, index, is_omitted in excess_rules(db, policies):
        if (key, index) not in alone:
            reason = (
                f"the workload has more than {MOST_RULES} rules; this rule is ignored"
                if is_omitted
                else f"the key sets of the workload exceed {largest} bytes (PILOT_JWKS_MAX_BYTES); the rule's tokens "
                "are rejected"
            )
            yield _problem(REQUEST_AUTHENTICATION.id, key, f"spec.jwtRules[{index}]", reason)


def _size(db: Mesh, kind: Kind[Any], key: ObjectKey) -> int:
    row = kind.get(db, key)
    return len(msgspec.json.encode(row.spec, enc_hook=str)) if row is not None else 0


def _problem(kind: GroupKind, key: ObjectKey, path: str, message: str) -> Problem:
    return Problem(
        code="too-large",
        object=ObjectRef(kind, key.namespace, key.name),
        path=path,
        message=message,
        severity=Severity.WARNING,
    )


POLICIES_OF_PROXIES = Check("policies of proxy", all_proxies, policy_problems)

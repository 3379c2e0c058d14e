"""The policies that apply to a workload, merged from policies for the mesh, the namespace and the workload.

Each kind of policy has an entry in `POLICIES`. Results contain only keys, so workloads with the same policies share
everything that is built from the policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from pilot.config.group_kind import GATEWAY_API
from pilot.config.kind import Kind
from pilot.config.kinds.istio import (
    AUTHORIZATION_POLICY,
    ENVOY_FILTER,
    PEER_AUTHENTICATION,
    REQUEST_AUTHENTICATION,
    TELEMETRY,
    TRAFFIC_EXTENSION,
)
from pilot.config.object import ObjectKey, age
from pilot.config.selector import PolicyTargetReference
from pilot.derive import derived, hub
from pilot.lib.labels import cut
from pilot.mesh.model.facets import Labels, PolicyFacet, PolicyScope, PolicySubjectKey, PolicyTargetKey
from pilot.mesh.model.proxy import NodeType
from pilot.mesh.registry.workloads import proxy_labels
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config, root_namespace
from pilot.mesh.tables.proxies import find_proxy

GATEWAY_NAME = "gateway.networking.k8s.io/gateway-name"
WAYPOINT_CLASS = "istio-waypoint"


class PolicyKind(NamedTuple):
    """A kind of policy, and the rules by which its objects apply.

    - `scopes`: the parts of a proxy that the policies change.
    - `one_for_all`: in each namespace, only the oldest policy without a selector applies. It precedes those with a
      selector.
    - `one_for_some`: in each namespace, only the oldest policy with a selector applies.
    - `root_selects`: the namespaces in which a policy in the root namespace may select workloads.
    """

    objects: Kind[Any]
    scopes: frozenset[PolicyScope]
    one_for_all: bool = False
    one_for_some: bool = False
    root_selects: Literal["every", "own", "none"] = "every"

    def may_select(self, namespace: str, workloads: str, root: str) -> bool:
        """Return whether a policy in `namespace` may select workloads in the namespace `workloads`."""
        return namespace != root or self.root_selects == "every" or (self.root_selects == "own" and workloads == root)


POLICIES: Mapping[str, PolicyKind] = {
    PEER_AUTHENTICATION.id.name: PolicyKind(
        PEER_AUTHENTICATION, frozenset(("ports",)), one_for_all=True, one_for_some=True, root_selects="none"
    ),
    REQUEST_AUTHENTICATION.id.name: PolicyKind(REQUEST_AUTHENTICATION, frozenset(("inbound", "gateway", "waypoint"))),
    AUTHORIZATION_POLICY.id.name: PolicyKind(AUTHORIZATION_POLICY, frozenset(("inbound", "gateway", "waypoint"))),
    TRAFFIC_EXTENSION.id.name: PolicyKind(TRAFFIC_EXTENSION, frozenset(("inbound", "outbound", "gateway", "waypoint"))),
    ENVOY_FILTER.id.name: PolicyKind(ENVOY_FILTER, frozenset(("patches",))),
    TELEMETRY.id.name: PolicyKind(TELEMETRY, frozenset(), one_for_all=True, root_selects="own"),
}


class PolicyAttachment(NamedTuple):
    """A policy and what it attaches to.

    It attaches to its targets or, if it has none, to the workloads that have its labels. Empty labels match all
    workloads.
    """

    key: ObjectKey
    labels: Labels = frozenset()
    targets: tuple[PolicyTargetReference, ...] = ()

    @property
    def selects(self) -> bool:
        """True if the policy applies only to some workloads in its namespace."""
        return bool(self.labels or self.targets)

    def applies_to(self, subject: PolicySubjectKey, selected_gateways: bool = True) -> bool:
        """Return whether the policy attaches to a workload. Its targets are in the policy's namespace.

        `selected_gateways` says whether policies without targets also apply to workloads that can be targets.
        """
        if not self.targets:
            return (
                not subject.by_target_only
                and self.labels <= subject.labels
                and (selected_gateways or not subject.targets)
            )
        targets = (PolicyTargetKey(self.key.namespace, _canonical(t.group), t.kind, t.name) for t in self.targets)
        return not subject.targets.isdisjoint(targets)


def _canonical(group: str) -> str:
    """Return the canonical name of an API group. The core group of Kubernetes may be written as "" or "core"."""
    return "" if group == "core" else group


@hub
def attachments(db: Mesh, kind: str, namespace: str) -> tuple[PolicyAttachment, ...]:
    """Return the policies of a kind in a namespace, oldest first."""
    view = POLICIES[kind].objects
    rows = [row for key in view.keys(db, "namespace", namespace) if (row := view.get(db, key)) is not None]
    return tuple(_attachment(row.key, row.spec) for row in sorted(rows, key=age))


def _attachment(key: ObjectKey, spec: Any) -> PolicyAttachment:
    labels = frozenset(spec.selector.match_labels.items()) if spec.selector is not None else frozenset()
    one = getattr(spec, "target_ref", None)
    return PolicyAttachment(key, labels, (*getattr(spec, "target_refs", ()), *((one,) if one is not None else ())))


@derived
def policy_label_keys(db: Mesh, namespace: str) -> frozenset[str]:
    """Return the label keys in the selectors of the policies in a namespace and in the root namespace."""
    namespaces = {namespace, mesh_config(db).root_namespace}
    policies = (a for kind in POLICIES for n in namespaces for a in attachments(db, kind, n))
    return frozenset(label for a in policies for label, _ in a.labels)


def proxy_policies(db: Mesh, node_id: str) -> PolicyFacet:
    """Return the policies of a connected proxy. Not memoised."""
    proxy, labels = find_proxy(db, node_id), proxy_labels(db, node_id)
    if proxy.type is NodeType.WAYPOINT:
        return policies_of(db, waypoint_subject(db, node_id))
    name = labels.get(GATEWAY_NAME, "") if proxy.type is NodeType.ROUTER else ""
    targets = frozenset((PolicyTargetKey(proxy.namespace, GATEWAY_API, "Gateway", name),)) if name else frozenset()
    return policies_of(
        db, PolicySubjectKey(proxy.namespace, cut(labels, policy_label_keys(db, proxy.namespace)), targets)
    )


def waypoint_subject(db: Mesh, node_id: str) -> PolicySubjectKey:
    """Return the subject of a waypoint for policies that do not depend on the requested service. Not memoised.

    Such policies target the waypoint's Gateway or, in the root namespace, the GatewayClass of all waypoints.
    """
    proxy, name = find_proxy(db, node_id), proxy_labels(db, node_id).get(GATEWAY_NAME, "")
    targets = {PolicyTargetKey(root_namespace(db), GATEWAY_API, "GatewayClass", WAYPOINT_CLASS)}
    if name:
        targets.add(PolicyTargetKey(proxy.namespace, GATEWAY_API, "Gateway", name))
    return PolicySubjectKey(proxy.namespace, targets=frozenset(targets), by_target_only=True)


def terminating_subject(db: Mesh, node_id: str) -> PolicySubjectKey:
    """Return the subject of a waypoint as a workload, for policies whose selectors match its labels. Not memoised."""
    proxy = find_proxy(db, node_id)
    return PolicySubjectKey(proxy.namespace, cut(proxy_labels(db, node_id), policy_label_keys(db, proxy.namespace)))


def at_service(subject: PolicySubjectKey, target: PolicyTargetKey) -> PolicySubjectKey:
    """Return the subject of a waypoint for requests to a service that it serves, which is an additional target."""
    return msgspec.structs.replace(subject, targets=subject.targets | {target})


@derived
def policies_of(db: Mesh, subject: PolicySubjectKey) -> PolicyFacet:
    """Return the policies that apply to a workload, grouped by kind.

    Policies in the root namespace precede those in the workload's namespace, and older policies precede newer ones.
    """
    applied = ((kind, policy_keys(db, kind, subject)) for kind in POLICIES)
    return PolicyFacet(tuple((kind, keys) for kind, keys in applied if keys))


def policy_keys(db: Mesh, kind: str, subject: PolicySubjectKey) -> tuple[ObjectKey, ...]:
    """Return the policies of one kind that apply to a workload, in the order of `policies_of`. Not memoised."""
    how, root, gateways = POLICIES[kind], mesh_config(db).root_namespace, db.settings.policies.selected_gateways
    namespaces = dict.fromkeys((root, subject.namespace, *sorted(t.namespace for t in subject.targets)))
    effective: list[PolicyAttachment] = []
    for namespace in namespaces:
        selects = how.may_select(namespace, subject.namespace, root)
        policies = [
            a
            for a in attachments(db, kind, namespace)
            if (selects and a.applies_to(subject, gateways)) or (how.one_for_all and not a.selects)
        ]
        effective += _levels(policies, how) if how.one_for_all else policies
    return tuple(a.key for a in effective)


def _levels(policies: Sequence[PolicyAttachment], how: PolicyKind) -> list[PolicyAttachment]:
    """Return the oldest policy without a selector, followed by the policies with a selector.

    If the kind has `one_for_some`, only the oldest policy with a selector is returned.
    """
    for_all, for_some = ([a for a in policies if a.selects is selects] for selects in (False, True))
    return [*for_all[:1], *(for_some[:1] if how.one_for_some else for_some)]


def in_scope(facet: PolicyFacet, scope: PolicyScope) -> PolicyFacet:
    """Return the policies that change one part of a proxy. Proxies that differ only in other policies have the same
    result."""
    return PolicyFacet(tuple((kind, keys) for kind, keys in facet.applied if scope in POLICIES[kind].scopes))

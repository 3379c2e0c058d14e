"""The policies that apply to a workload: the one place where they are merged from the mesh over the namespace to the workload.

A kind of policy is an entry of `POLICIES`; what comes out is keys only, so that workloads with the same policies share what is built.
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
    """The way in which the objects of a kind apply.

    `scopes` are the parts of a proxy that they change. With `one_for_all` only the oldest counts of those for all workloads of a namespace, and it
    comes before those that select some; with `one_for_some` only the oldest of these counts too. `root_selects`: the namespaces whose workloads a
    policy of the root namespace may select.
    """

    objects: Kind[Any]
    scopes: frozenset[PolicyScope]
    one_for_all: bool = False
    one_for_some: bool = False
    root_selects: Literal["every", "own", "none"] = "every"

    def may_select(self, namespace: str, workloads: str, root: str) -> bool:
        """Returns whether a policy of a namespace may select workloads of one."""
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
    """A policy, and what it is attached to: the targets that it names, else the workloads with its labels (none: all workloads)."""

    key: ObjectKey
    labels: Labels = frozenset()
    targets: tuple[PolicyTargetReference, ...] = ()

    @property
    def selects(self) -> bool:
        """Returns whether the policy is for some workloads of its namespace only."""
        return bool(self.labels or self.targets)

    def applies_to(self, subject: PolicySubjectKey, selected_gateways: bool = True) -> bool:
        """Returns whether the policy is attached to the workload. A target is one of the policy's own namespace. `selected_gateways`: a policy
        without targets may be for a workload that stands for some."""
        if not self.targets:
            return (
                not subject.by_target_only
                and self.labels <= subject.labels
                and (selected_gateways or not subject.targets)
            )
        named = (PolicyTargetKey(self.key.namespace, _canonical(t.group), t.kind, t.name) for t in self.targets)
        return not subject.targets.isdisjoint(named)


def _canonical(group: str) -> str:
    """Returns an API group by its one name; that of Kubernetes' own kinds has two."""
    return "" if group == "core" else group


@hub
def attachments(db: Mesh, kind: str, namespace: str) -> tuple[PolicyAttachment, ...]:
    """Returns the policies of a kind in a namespace, oldest first."""
    view = POLICIES[kind].objects
    rows = [row for key in view.keys(db, "namespace", namespace) if (row := view.get(db, key)) is not None]
    return tuple(_attachment(row.key, row.spec) for row in sorted(rows, key=age))


def _attachment(key: ObjectKey, spec: Any) -> PolicyAttachment:
    labels = frozenset(spec.selector.match_labels.items()) if spec.selector is not None else frozenset()
    one = getattr(spec, "target_ref", None)
    return PolicyAttachment(key, labels, (*getattr(spec, "target_refs", ()), *((one,) if one is not None else ())))


@derived
def policy_label_keys(db: Mesh, namespace: str) -> frozenset[str]:
    """Returns the label keys that the policies of a namespace and of the root namespace select workloads by."""
    namespaces = {namespace, mesh_config(db).root_namespace}
    found = (a for kind in POLICIES for n in namespaces for a in attachments(db, kind, n))
    return frozenset(label for a in found for label, _ in a.labels)


def proxy_policies(db: Mesh, node_id: str) -> PolicyFacet:
    """Returns the policies of a connected proxy. No node of its own."""
    proxy, labels = find_proxy(db, node_id), proxy_labels(db, node_id)
    if proxy.type is NodeType.WAYPOINT:
        return policies_of(db, waypoint_subject(db, node_id))
    name = labels.get(GATEWAY_NAME, "") if proxy.type is NodeType.ROUTER else ""
    targets = frozenset((PolicyTargetKey(proxy.namespace, GATEWAY_API, "Gateway", name),)) if name else frozenset()
    return policies_of(
        db, PolicySubjectKey(proxy.namespace, cut(labels, policy_label_keys(db, proxy.namespace)), targets)
    )


def waypoint_subject(db: Mesh, node_id: str) -> PolicySubjectKey:
    """Returns what decides on the policies of a waypoint, whatever service is asked for: those for its Gateway, and those of the root namespace for
    the class of all waypoints. No node of its own."""
    proxy, name = find_proxy(db, node_id), proxy_labels(db, node_id).get(GATEWAY_NAME, "")
    targets = {PolicyTargetKey(root_namespace(db), GATEWAY_API, "GatewayClass", WAYPOINT_CLASS)}
    if name:
        targets.add(PolicyTargetKey(proxy.namespace, GATEWAY_API, "Gateway", name))
    return PolicySubjectKey(proxy.namespace, targets=frozenset(targets), by_target_only=True)


def terminating_subject(db: Mesh, node_id: str) -> PolicySubjectKey:
    """Returns what decides on the policies of a waypoint as the workload that it is: those that select it by its labels. No node of its own."""
    proxy = find_proxy(db, node_id)
    return PolicySubjectKey(proxy.namespace, cut(proxy_labels(db, node_id), policy_label_keys(db, proxy.namespace)))


def at_service(subject: PolicySubjectKey, target: PolicyTargetKey) -> PolicySubjectKey:
    """Returns the subject of a waypoint with a service or entry that it stands for too."""
    return msgspec.structs.replace(subject, targets=subject.targets | {target})


@derived
def policies_of(db: Mesh, subject: PolicySubjectKey) -> PolicyFacet:
    """Returns the policies of a workload; for each kind first those of the root namespace, then those of its own, oldest first."""
    applied = ((kind, policy_keys(db, kind, subject)) for kind in POLICIES)
    return PolicyFacet(tuple((kind, keys) for kind, keys in applied if keys))


def policy_keys(db: Mesh, kind: str, subject: PolicySubjectKey) -> tuple[ObjectKey, ...]:
    """Returns the policies of one kind, in the order of `policies_of`. No node of its own."""
    how, root, gateways = POLICIES[kind], mesh_config(db).root_namespace, db.settings.policies.selected_gateways
    namespaces = dict.fromkeys((root, subject.namespace, *sorted(t.namespace for t in subject.targets)))
    counted: list[PolicyAttachment] = []
    for namespace in namespaces:
        selects = how.may_select(namespace, subject.namespace, root)
        found = [
            a
            for a in attachments(db, kind, namespace)
            if (selects and a.applies_to(subject, gateways)) or (how.one_for_all and not a.selects)
        ]
        counted += _levels(found, how) if how.one_for_all else found
    return tuple(a.key for a in counted)


def _levels(found: Sequence[PolicyAttachment], how: PolicyKind) -> list[PolicyAttachment]:
    """Returns the oldest that is for all workloads, then the oldest of those that select, or all of these."""
    everywhere, somewhere = ([a for a in found if a.selects is selects] for selects in (False, True))
    return [*everywhere[:1], *(somewhere[:1] if how.one_for_some else somewhere)]


def in_scope(facet: PolicyFacet, scope: PolicyScope) -> PolicyFacet:
    """Returns the policies that change one part of a proxy, so that proxies that differ in others share that part."""
    return PolicyFacet(tuple((kind, keys) for kind, keys in facet.applied if scope in POLICIES[kind].scopes))

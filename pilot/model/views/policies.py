"""The policies that apply to a workload: the one place where they are merged from the mesh over the namespace to the workload.

A kind of policy is an entry of `POLICIES`; what comes out is keys only, so that workloads with the same policies share what is built.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pilot.derive import derived, hub
from pilot.lib.labels import cut
from pilot.model.config.object import ObjectKey, age
from pilot.model.config.selector import PolicyTargetReference
from pilot.model.facets import Labels, PolicyFacet, PolicyScope, PolicySubjectKey
from pilot.model.inputs import Mesh
from pilot.model.proxy import NodeType
from pilot.model.views.kinds.authorization_policies import authorization_policies
from pilot.model.views.kinds.peer_authentications import peer_authentications
from pilot.model.views.kinds.request_authentications import request_authentications
from pilot.model.views.kinds.view import KindView
from pilot.model.views.mesh import mesh_config
from pilot.model.views.proxies import find_proxy
from pilot.model.views.workloads import proxy_labels

PEER_AUTHENTICATION = "PeerAuthentication"
REQUEST_AUTHENTICATION = "RequestAuthentication"
AUTHORIZATION_POLICY = "AuthorizationPolicy"
GATEWAY_API, GATEWAY_NAME = "gateway.networking.k8s.io", "gateway.networking.k8s.io/gateway-name"


class PolicyKind(NamedTuple):
    """The way in which the objects of a kind apply.

    `scopes` are the parts of a proxy that they change. With `one_a_level` only the oldest counts of those for the mesh, for the namespace and for the
    workload, else all count. With `root_selects` one of the root namespace may select workloads, of all namespaces.
    """

    objects: KindView[Any]
    scopes: frozenset[PolicyScope]
    one_a_level: bool = False
    root_selects: bool = True


POLICIES: Mapping[str, PolicyKind] = {
    PEER_AUTHENTICATION: PolicyKind(peer_authentications, frozenset(("ports",)), one_a_level=True, root_selects=False),
    REQUEST_AUTHENTICATION: PolicyKind(request_authentications, frozenset(("inbound", "gateway"))),
    AUTHORIZATION_POLICY: PolicyKind(authorization_policies, frozenset(("inbound", "gateway"))),
}


class Attachment(NamedTuple):
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
            return self.labels <= subject.labels and (selected_gateways or not subject.targets)
        return self.key.namespace == subject.namespace and any((t.group, t.kind, t.name) in subject.targets for t in self.targets)


@hub
def attachments(db: Mesh, kind: str, namespace: str) -> tuple[Attachment, ...]:
    """Returns the policies of a kind in a namespace, oldest first."""
    view = POLICIES[kind].objects
    rows = [row for key in view.keys(db, "namespace", namespace) if (row := view.get(db, key)) is not None]
    return tuple(_attachment(row.key, row.spec) for row in sorted(rows, key=age))


def _attachment(key: ObjectKey, spec: Any) -> Attachment:
    labels = frozenset(spec.selector.match_labels.items()) if spec.selector is not None else frozenset()
    one = getattr(spec, "target_ref", None)
    return Attachment(key, labels, (*getattr(spec, "target_refs", ()), *((one,) if one is not None else ())))


@derived
def policy_label_keys(db: Mesh, namespace: str) -> frozenset[str]:
    """Returns the label keys that the policies of a namespace and of the root namespace select workloads by."""
    namespaces = {namespace, mesh_config(db).root_namespace}
    found = (a for kind in POLICIES for n in namespaces for a in attachments(db, kind, n))
    return frozenset(label for a in found for label, _ in a.labels)


def proxy_policies(db: Mesh, node_id: str) -> PolicyFacet:
    """Returns the policies of a connected proxy. No node of its own."""
    proxy, labels = find_proxy(db, node_id), proxy_labels(db, node_id)
    name = labels.get(GATEWAY_NAME, "") if proxy.type is NodeType.ROUTER else ""
    targets = frozenset(((GATEWAY_API, "Gateway", name),)) if name else frozenset()
    return policies_of(db, PolicySubjectKey(proxy.namespace, cut(labels, policy_label_keys(db, proxy.namespace)), targets))


@derived
def policies_of(db: Mesh, subject: PolicySubjectKey) -> PolicyFacet:
    """Returns the policies of a workload; for each kind first those of the root namespace, then those of its own, oldest first."""
    applied = ((kind, policy_keys(db, kind, subject)) for kind in POLICIES)
    return PolicyFacet(tuple((kind, keys) for kind, keys in applied if keys))


def policy_keys(db: Mesh, kind: str, subject: PolicySubjectKey) -> tuple[ObjectKey, ...]:
    """Returns the policies of one kind, in the order of `policies_of`. No node of its own."""
    how, root, gateways = POLICIES[kind], mesh_config(db).root_namespace, db.settings.policies.selected_gateways
    of_root = [a for a in attachments(db, kind, root) if a.applies_to(subject, gateways) and (how.root_selects or not a.selects)]
    own = [a for a in attachments(db, kind, subject.namespace) if a.applies_to(subject, gateways)] if subject.namespace != root else []
    return tuple(a.key for a in ((*_levels(of_root), *_levels(own)) if how.one_a_level else (*of_root, *own)))


def _levels(found: Iterable[Attachment]) -> list[Attachment]:
    """Returns the oldest that is for all workloads, then the oldest that selects."""
    first: dict[bool, Attachment] = {}
    for a in found:
        first.setdefault(a.selects, a)
    return [first[selects] for selects in sorted(first)]


def in_scope(facet: PolicyFacet, scope: PolicyScope) -> PolicyFacet:
    """Returns the policies that change one part of a proxy, so that proxies that differ in others share that part."""
    return PolicyFacet(tuple((kind, keys) for kind, keys in facet.applied if scope in POLICIES[kind].scopes))

"""Policies that ztunnels enforce: which apply to a workload, and what they ask for.

AuthorizationPolicies come with their own names; PeerAuthentications become policies that deny connections without mutual TLS. A policy that is for
all workloads of its namespace, or of the mesh, applies without being named by any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, PEER_AUTHENTICATION
from pilot.config.object import Object, ObjectKey
from pilot.config.security.authorization_policy import AuthorizationPolicy, dry_run
from pilot.config.security.peer_authentication import MutualTLS, PeerAuthentication
from pilot.derive import derived, hub
from pilot.mesh.ambient.waypoints import waypoint_accounts
from pilot.mesh.model.facets import Labels, PolicySubjectKey
from pilot.mesh.security.policies import attachments, policy_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace

STATIC_STRICT = "istio_converted_static_strict"
CONVERTED = "converted_peer_authentication_"
ALLOW_WAYPOINT = "istio_allow_waypoint_"
"""What the names of policies are, or begin with, that follow from others: "_" is in no name of an object."""


# -- AuthorizationPolicies -------------------------------------------------------------------------------------------------


class SelectingPolicy(NamedTuple):
    """A policy by its name, and the labels of the workloads that it selects."""

    name: str
    labels: Labels


@derived
def enforced(db: Mesh, key: ObjectKey) -> Object[AuthorizationPolicy] | None:
    """Returns an AuthorizationPolicy that ztunnels are told of; None for those that are for waypoints, are only counted or only audit."""
    row = AUTHORIZATION_POLICY.get(db, key)
    if row is None or row.spec.target_ref is not None or row.spec.target_refs or row.spec.action == "AUDIT":
        return None
    return row if db.settings.ambient.dry_run_policies or not dry_run(row.annotations) else None


def is_selective(row: Object[AuthorizationPolicy]) -> bool:
    """Returns whether a policy is for some workloads only."""
    return row.spec.selector is not None and bool(row.spec.selector.match_labels)


@hub
def _selecting(db: Mesh, namespace: str) -> tuple[SelectingPolicy, ...]:
    """Returns the AuthorizationPolicies of a namespace that select workloads, by name."""
    rows = (enforced(db, key) for key in AUTHORIZATION_POLICY.keys(db, "namespace", namespace))
    return tuple(
        SelectingPolicy(f"{row.namespace}/{row.name}", frozenset(row.spec.selector.match_labels.items()))
        for row in rows
        if row is not None and row.spec.selector is not None and is_selective(row)
    )


# -- PeerAuthentications ---------------------------------------------------------------------------------------------------


class PortPolicy(msgspec.Struct, frozen=True):
    """The policy that a PeerAuthentication with ports becomes: connections without mutual TLS are denied, on `ports` alone or, where `strict`, on
    all ports but these. `first`: the PeerAuthentication says so itself, and not those before it."""

    key: ObjectKey
    strict: bool
    ports: tuple[int, ...]
    first: bool


@derived
def _is_strict(db: Mesh, namespace: str) -> bool:
    """Returns whether workloads of a namespace take mutual TLS alone where no policy selects them."""
    strict = False
    for spec in _specs(db, policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace))):
        strict = _said(spec.mtls, strict)
    return strict


def _specs(db: Mesh, keys: Iterable[ObjectKey]) -> Iterator[PeerAuthentication]:
    return (row.spec for key in keys if (row := PEER_AUTHENTICATION.get(db, key)) is not None)


def _said(mtls: MutualTLS | None, before: bool) -> bool:
    return before if mtls is None or mtls.mode == "UNSET" else mtls.mode == "STRICT"


@derived
def port_policy(db: Mesh, key: ObjectKey) -> PortPolicy | None:
    """Returns the policy that a PeerAuthentication becomes because of its ports; None where it says nothing of ports that differs from the rest."""
    row = PEER_AUTHENTICATION.get(db, key)
    if row is None or key.namespace == root_namespace(db):
        return None
    strict = _said(row.spec.mtls, _is_strict(db, key.namespace))
    different = (
        port
        for port, mtls in row.spec.port_level_mtls.items()
        if mtls.mode != "UNSET" and (mtls.mode == "STRICT") != strict
    )
    ports = tuple(sorted(different))
    return PortPolicy(key, strict, ports, _said(row.spec.mtls, False)) if ports else None


@derived
def _mtls_policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    """Returns the policies that PeerAuthentications become which apply to workloads with these labels."""
    strict, root = _is_strict(db, namespace), root_namespace(db)
    found = (
        [a for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace) if a.selects and a.labels <= labels]
        if namespace != root
        else []
    )
    oldest = PEER_AUTHENTICATION.get(db, found[0].key) if found else None
    if oldest is not None:
        if port_policy(db, oldest.key) is not None:
            return (f"{namespace}/{CONVERTED}{oldest.name}",)
        strict = _said(oldest.spec.mtls, strict)
    return (f"{root}/{STATIC_STRICT}",) if strict else ()


@hub
def has_peer_authentications(db: Mesh) -> bool:
    """Returns whether there is any, so that workloads may name the policy that asks for mutual TLS."""
    return bool(PEER_AUTHENTICATION.all_keys(db))


# -- policies of a workload ------------------------------------------------------------------------------------------------


@derived
def _asked_labels(db: Mesh, namespace: str) -> frozenset[str]:
    """Returns the label keys that policies select workloads of a namespace by."""
    found = [labels for n in {namespace, root_namespace(db)} for _, labels in _selecting(db, n)]
    found += [a.labels for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace)]
    return frozenset(key for labels in found for key, _ in labels)


@derived
def _policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    root = root_namespace(db)
    listed = [one for n in sorted({namespace, root}) for one in _selecting(db, n)]
    return (*sorted(one.name for one in listed if one.labels <= labels), *_mtls_policies(db, namespace, labels))


def workload_policies(db: Mesh, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the policies that select a workload, as `namespace/name`. Workloads that differ in labels that no policy asks for share them.
    No node of its own."""
    asked = _asked_labels(db, namespace)
    return _policies(db, namespace, frozenset((k, labels[k]) for k in asked if k in labels))


@derived
def endpoint_policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    """Returns the policies of an endpoint that is written into a ServiceEntry with these labels. Nobody enforces them; as in Istio one without any
    label has those of every selector."""
    if labels:
        return workload_policies(db, namespace, dict(labels))
    listed = [one.name for n in sorted({namespace, root_namespace(db)}) for one in _selecting(db, n)]
    return (*sorted(listed), *_mtls_policies(db, namespace, labels))


# -- waypoints that are let in ---------------------------------------------------------------------------------------------


def waypoint_policies(db: Mesh, waypoints: Iterable[ObjectKey]) -> tuple[str, ...]:
    """Returns the policies that let waypoints in, of those that have any Pod. No node of its own."""
    ambient = db.settings.ambient
    if not (ambient.enabled and ambient.allow_waypoints):
        return ()
    return tuple(f"{key.namespace}/{allow_name(key)}" for key in dict.fromkeys(waypoints) if waypoint_accounts(db, key))


def allow_name(key: ObjectKey) -> str:
    """Returns the name of the policy that lets a waypoint in."""
    return f"{ALLOW_WAYPOINT}{key.namespace}_{key.name}"

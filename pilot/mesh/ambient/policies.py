"""The policies that ztunnels enforce for a workload.

AuthorizationPolicies keep their names. PeerAuthentications are converted to policies that deny connections without
mutual TLS. A policy for all workloads in a namespace or in the mesh applies even if workloads do not list it.
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
"""Names and name prefixes of converted policies. They contain "_", which cannot occur in names of objects."""


# -- AuthorizationPolicies ---------------------------------------------------------------------------------------------


class SelectingPolicy(NamedTuple):
    """The name of a policy and the labels in its selector."""

    name: str
    labels: Labels


@derived
def enforced(db: Mesh, key: ObjectKey) -> Object[AuthorizationPolicy] | None:
    """Return an AuthorizationPolicy if ztunnels enforce it. Return None if it targets waypoints, is a dry run or has
    the action AUDIT."""
    row = AUTHORIZATION_POLICY.get(db, key)
    if row is None or row.spec.target_ref is not None or row.spec.target_refs or row.spec.action == "AUDIT":
        return None
    return row if db.settings.ambient.dry_run_policies or not dry_run(row.annotations) else None


def is_selective(row: Object[AuthorizationPolicy]) -> bool:
    """Return whether a policy selects only some workloads."""
    return row.spec.selector is not None and bool(row.spec.selector.match_labels)


@hub
def _selecting(db: Mesh, namespace: str) -> tuple[SelectingPolicy, ...]:
    """Return the AuthorizationPolicies in a namespace that have selectors."""
    rows = (enforced(db, key) for key in AUTHORIZATION_POLICY.keys(db, "namespace", namespace))
    return tuple(
        SelectingPolicy(f"{row.namespace}/{row.name}", frozenset(row.spec.selector.match_labels.items()))
        for row in rows
        if row is not None and row.spec.selector is not None and is_selective(row)
    )


# -- PeerAuthentications -----------------------------------------------------------------------------------------------


class PortPolicy(msgspec.Struct, frozen=True):
    """The policy that results from a PeerAuthentication with port settings.

    It denies connections without mutual TLS on `ports` only or, if `strict`, on all other ports. `first` says that the
    PeerAuthentication itself sets the mode STRICT and does not inherit it.
    """

    key: ObjectKey
    strict: bool
    ports: tuple[int, ...]
    first: bool


@derived
def _is_strict(db: Mesh, namespace: str) -> bool:
    """Return whether workloads in a namespace require mutual TLS if no policy selects them."""
    strict = False
    for spec in _specs(db, policy_keys(db, PEER_AUTHENTICATION.id.name, PolicySubjectKey(namespace))):
        strict = _strictness(spec.mtls, strict)
    return strict


def _specs(db: Mesh, keys: Iterable[ObjectKey]) -> Iterator[PeerAuthentication]:
    return (row.spec for key in keys if (row := PEER_AUTHENTICATION.get(db, key)) is not None)


def _strictness(mtls: MutualTLS | None, inherited: bool) -> bool:
    return inherited if mtls is None or mtls.mode == "UNSET" else mtls.mode == "STRICT"


@derived
def port_policy(db: Mesh, key: ObjectKey) -> PortPolicy | None:
    """Return the policy for the port settings of a PeerAuthentication.

    Return None if all ports have the same mode, or if the PeerAuthentication is in the root namespace.
    """
    row = PEER_AUTHENTICATION.get(db, key)
    if row is None or key.namespace == root_namespace(db):
        return None
    strict = _strictness(row.spec.mtls, _is_strict(db, key.namespace))
    different = (
        port
        for port, mtls in row.spec.port_level_mtls.items()
        if mtls.mode != "UNSET" and (mtls.mode == "STRICT") != strict
    )
    ports = tuple(sorted(different))
    return PortPolicy(key, strict, ports, _strictness(row.spec.mtls, False)) if ports else None


@derived
def _mtls_policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    """Return the converted PeerAuthentications that apply to workloads with these labels."""
    strict, root = _is_strict(db, namespace), root_namespace(db)
    selecting = (
        [a for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace) if a.selects and a.labels <= labels]
        if namespace != root
        else []
    )
    oldest = PEER_AUTHENTICATION.get(db, selecting[0].key) if selecting else None
    if oldest is not None:
        if port_policy(db, oldest.key) is not None:
            return (f"{namespace}/{CONVERTED}{oldest.name}",)
        strict = _strictness(oldest.spec.mtls, strict)
    return (f"{root}/{STATIC_STRICT}",) if strict else ()


@hub
def has_peer_authentications(db: Mesh) -> bool:
    """Return whether any PeerAuthentication exists. If so, workloads may list the policy that requires mutual TLS."""
    return bool(PEER_AUTHENTICATION.all_keys(db))


# -- policies of a workload --------------------------------------------------------------------------------------------


@derived
def _selector_keys(db: Mesh, namespace: str) -> frozenset[str]:
    """Return the label keys in the selectors of policies that apply to a namespace."""
    selectors = [labels for n in {namespace, root_namespace(db)} for _, labels in _selecting(db, n)]
    selectors += [a.labels for a in attachments(db, PEER_AUTHENTICATION.id.name, namespace)]
    return frozenset(key for labels in selectors for key, _ in labels)


@derived
def _policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    root = root_namespace(db)
    listed = [one for n in sorted({namespace, root}) for one in _selecting(db, n)]
    return (*sorted(one.name for one in listed if one.labels <= labels), *_mtls_policies(db, namespace, labels))


def workload_policies(db: Mesh, namespace: str, labels: Mapping[str, str]) -> tuple[str, ...]:
    """Return the policies that select a workload, as `namespace/name`.

    Not memoised itself, but workloads that differ only in labels that no policy selects share a memoised result.
    """
    keys = _selector_keys(db, namespace)
    return _policies(db, namespace, frozenset((k, labels[k]) for k in keys if k in labels))


@derived
def endpoint_policies(db: Mesh, namespace: str, labels: Labels) -> tuple[str, ...]:
    """Return the policies that a ServiceEntry endpoint with these labels lists. Nothing enforces these policies.

    As in istiod, if there are no labels, the endpoint lists all policies with selectors.
    """
    if labels:
        return workload_policies(db, namespace, dict(labels))
    listed = [one.name for n in sorted({namespace, root_namespace(db)}) for one in _selecting(db, n)]
    return (*sorted(listed), *_mtls_policies(db, namespace, labels))


# -- policies that allow waypoints -------------------------------------------------------------------------------------


def waypoint_policies(db: Mesh, waypoints: Iterable[ObjectKey]) -> tuple[str, ...]:
    """Return the policies that allow connections from waypoints. Waypoints without Pods have none. Not memoised."""
    ambient = db.settings.ambient
    if not (ambient.enabled and ambient.allow_waypoints):
        return ()
    return tuple(f"{key.namespace}/{allow_name(key)}" for key in dict.fromkeys(waypoints) if waypoint_accounts(db, key))


def allow_name(key: ObjectKey) -> str:
    """Return the name of the policy that allows connections from a waypoint."""
    return f"{ALLOW_WAYPOINT}{key.namespace}_{key.name}"

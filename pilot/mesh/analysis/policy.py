"""Checks that the selectors and targets of policies match something, and that no older policy shadows them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, PEER_AUTHENTICATION, REQUEST_AUTHENTICATION, SERVICE_ENTRY
from pilot.config.object import Object, ObjectKey, age
from pilot.config.problem import Problem, Problems, below, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.config.security.peer_authentication import PeerAuthentication
from pilot.config.selector import PolicyTargetReference
from pilot.derive import Steps, derived, derived_in_steps
from pilot.mesh.analysis.check import Check, attribute
from pilot.mesh.analysis.connection_policy import check_connections
from pilot.mesh.analysis.overlap import Selecting, find_overlaps
from pilot.mesh.analysis.policy_port import check_policy_ports, check_port_levels
from pilot.mesh.analysis.policy_protocol import check_policy_protocols
from pilot.mesh.analysis.selector import (
    check_selector,
    check_selector_anywhere,
    label_sets,
    router_labels,
)
from pilot.mesh.model.ambient_features import serves_waypoints
from pilot.mesh.model.facets import PolicySubjectKey
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.services import service
from pilot.mesh.security.authorizers import authorizer
from pilot.mesh.security.jwt import excess_rules
from pilot.mesh.security.policies import GATEWAY_NAME, policy_keys
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace


@derived
def _peer_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return PEER_AUTHENTICATION.all_keys(db)


@derived
def peer_authentication_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a PeerAuthentication and other objects."""
    policy = PEER_AUTHENTICATION.get(db, key)
    if policy is None:
        return ()
    problems = (*below("spec.selector", _check_peer(db, policy)), *below("spec", check_port_levels(db, policy)))
    return attribute(policy, problems)


def _check_peer(db: Mesh, o: Object[PeerAuthentication]) -> Problems:
    labels = _labels(o)
    if o.namespace == root_namespace(db) and labels:
        yield warning("selector-without-effect", "", "in the root namespace, policies with a selector have no effect")
        return
    yield from check_selector(db, o.namespace, labels)
    for key in _older_policies(db, o.key):
        yield warning(
            "policy-shadowed",
            "",
            f"the older PeerAuthentication {key.namespace}/{key.name} applies to some or all of its workloads",
        )


@derived
def _older_policies(db: Mesh, key: ObjectKey) -> tuple[ObjectKey, ...]:
    """Return the older PeerAuthentications for some of the workloads of a PeerAuthentication."""
    return _overlaps(db, key.namespace).get(key, ())


@derived_in_steps
def _overlaps(db: Mesh, namespace: str) -> Steps[Mapping[ObjectKey, tuple[ObjectKey, ...]]]:
    keys = PEER_AUTHENTICATION.keys(db, "namespace", namespace)
    rows = sorted((row for key in keys if (row := PEER_AUTHENTICATION.get(db, key)) is not None), key=age)
    selecting = [Selecting(row.key, frozenset(_labels(row).items())) for row in rows]
    yield None
    for_all = find_overlaps((one for one in selecting if not one.labels), (frozenset(),))
    for_some = find_overlaps((one for one in selecting if one.labels), label_sets(db, namespace))
    return {**(yield from for_all), **(yield from for_some)}


def _labels(o: Object[PeerAuthentication]) -> dict[str, str]:
    return o.spec.selector.match_labels if o.spec.selector is not None else {}


PEER_AUTHENTICATIONS = Check("PeerAuthentication", _peer_keys, peer_authentication_problems)


@derived
def _request_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return REQUEST_AUTHENTICATION.all_keys(db)


@derived
def request_authentication_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems between a RequestAuthentication and other objects."""
    policy = REQUEST_AUTHENTICATION.get(db, key)
    if policy is None:
        return ()
    return attribute(policy, below("spec", (*check_attachment(db, policy), *_check_rules(db, key))))


def _check_rules(db: Mesh, key: ObjectKey) -> Problems:
    """Yield a problem for each JWT rule whose keys are not used because the object's key sets are too large."""
    largest = db.settings.policies.largest_key_sets
    for _, index, is_omitted in excess_rules(db, (key,)):
        if not is_omitted:  # a RequestAuthentication with too many rules is rejected
            yield warning(
                "too-long",
                f"jwtRules[{index}]",
                f"the object's key sets exceed {largest} bytes (PILOT_JWKS_MAX_BYTES); the rule's tokens are rejected",
            )


def check_attachment(db: Mesh, o: Object[Any]) -> Problems:
    """Yield a problem for each target of a policy that does not exist, and for a selector that matches no workload.

    Paths are relative to the policy's spec.
    """
    yield from check_selected(db, o)
    yield from check_targets(db, o.namespace, o.spec.target_ref, o.spec.target_refs)


def check_selected(db: Mesh, o: Object[Any]) -> Problems:
    """Yield a problem if a policy's selector matches no workload. The path is relative to the policy's spec."""
    yield from below("selector", _check_labels(db, o))


def _check_labels(db: Mesh, o: Object[Any]) -> Problems:
    labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
    if o.namespace != root_namespace(db):
        yield from check_selector(db, o.namespace, labels)
    else:
        yield from check_selector_anywhere(db, labels, o.namespace)


def check_targets(
    db: Mesh, namespace: str, target: PolicyTargetReference | None, targets: tuple[PolicyTargetReference, ...]
) -> Problems:
    """Yield a problem for each target that does not exist in the policy's namespace. Paths are relative to the policy's
    spec."""
    if target is not None:
        yield from below("targetRef", _check_target(db, namespace, target))
    for index, one in enumerate(targets):
        yield from below(f"targetRefs[{index}]", _check_target(db, namespace, one))


def _check_target(db: Mesh, namespace: str, target: PolicyTargetReference) -> Problems:
    """Yield a problem if a target does not exist in the policy's namespace, or if no proxy enforces policies for its
    kind."""
    if target.kind == "Gateway":
        if not any(
            (GATEWAY_NAME, target.name) in labels
            for labels in (*label_sets(db, namespace), *router_labels(db, namespace))
        ):
            yield warning(
                "target-not-found",
                "name",
                f"no router in namespace {namespace} has the label {GATEWAY_NAME}={target.name}",
            )
    elif not _exists(db, namespace, target):
        yield warning("target-not-found", "name", f"namespace {namespace} has no {target.kind} {target.name}")
    elif not serves_waypoints(db.settings.ambient):
        yield warning(
            "no-effect",
            "kind",
            f"policies for a {target.kind} take effect at waypoints, which are disabled (PILOT_ENABLE_AMBIENT)",
        )


def _exists(db: Mesh, namespace: str, target: PolicyTargetReference) -> bool:
    """Return whether a target exists in a namespace. GatewayClasses are assumed to exist."""
    if target.kind == "ServiceEntry":
        return SERVICE_ENTRY.get(db, ObjectKey(namespace, target.name)) is not None
    ref = ServiceRef(kubernetes_hostname(target.name, namespace, db.settings.registry.domain), namespace)
    return target.kind != "Service" or service(db, ref) is not None


REQUEST_AUTHENTICATIONS = Check("RequestAuthentication", _request_keys, request_authentication_problems)


@derived
def _authorization_keys(db: Mesh) -> tuple[ObjectKey, ...]:
    return AUTHORIZATION_POLICY.all_keys(db)


@derived
def authorization_policy_problems(db: Mesh, key: ObjectKey) -> tuple[Problem, ...]:
    """Return the problems of an AuthorizationPolicy that depend on other objects, such as a missing provider."""
    policy = AUTHORIZATION_POLICY.get(db, key)
    return attribute(policy, below("spec", _check_authorization(db, policy))) if policy is not None else ()


def _check_authorization(db: Mesh, o: Object[AuthorizationPolicy]) -> Problems:
    yield from check_attachment(db, o)
    yield from check_connections(db, o)
    yield from check_policy_ports(db, o)
    yield from check_policy_protocols(db, o)
    yield from _check_request_principals(db, o)
    if (
        o.spec.action == "CUSTOM"
        and o.spec.provider is not None
        and isinstance(fault := authorizer(db, o.spec.provider.name), str)
    ):
        yield warning("provider-not-found", "provider.name", f"{fault}; everything that this policy matches is denied")


def _check_request_principals(db: Mesh, o: Object[AuthorizationPolicy]) -> Problems:
    """Yield a problem for each rule that allows only authenticated requests, if no RequestAuthentication applies.

    Without a RequestAuthentication, no request has a request principal.
    """
    paths = [
        f"rules[{r}].from[0].source.requestPrincipals"
        for r, rule in enumerate(o.spec.rules)
        if rule.from_ and all(f.source is not None and f.source.request_principals for f in rule.from_)
    ]
    if not paths or o.spec.action != "ALLOW" or _has_request_authentication(db, o):
        return
    effect = "all are denied" if len(paths) == len(o.spec.rules) else "this rule allows none"
    for path in paths:
        yield warning(
            "no-request-principal",
            path,
            f"requests have no request principal, because no RequestAuthentication applies, so {effect}; "
            "create a RequestAuthentication for the workloads",
        )


def _has_request_authentication(db: Mesh, o: Object[AuthorizationPolicy]) -> bool:
    """Return whether a RequestAuthentication applies to a workload of a policy, or may apply if none is known."""
    root = root_namespace(db)
    if o.namespace == root:
        return bool(REQUEST_AUTHENTICATION.all_keys(db))
    if not any(REQUEST_AUTHENTICATION.keys(db, "namespace", namespace) for namespace in (root, o.namespace)):
        return False
    if o.spec.target_ref is not None or o.spec.target_refs:
        return True
    labels = o.spec.selector.match_labels if o.spec.selector is not None else {}
    workloads = [have for have in label_sets(db, o.namespace) if labels.items() <= have][:_MAX_WORKLOADS]
    subjects = (PolicySubjectKey(o.namespace, have) for have in workloads)
    return not workloads or any(policy_keys(db, REQUEST_AUTHENTICATION.id.name, subject) for subject in subjects)


_MAX_WORKLOADS = 100
"""Maximum number of label sets of workloads for which a RequestAuthentication is searched."""
AUTHORIZATION_POLICIES = Check("AuthorizationPolicy", _authorization_keys, authorization_policy_problems)

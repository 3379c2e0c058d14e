"""Checks AuthorizationPolicies for rules that ztunnels cannot enforce because they match properties of requests."""

from __future__ import annotations

from pilot.config.object import Object
from pilot.config.problem import Problems, below, warning
from pilot.config.security.authorization_policy import AuthorizationPolicy
from pilot.mesh.ambient.policies import enforced
from pilot.mesh.ambient.traffic_capture import captured_labels, capturing_namespaces
from pilot.mesh.model.request_only_fields import request_only_fields
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace

_OUTCOMES = {
    "ALLOW": "allows nothing",
    "DENY": "denies every connection that matches its other conditions",
    "CUSTOM": "denies every connection that matches its other conditions",
}


def check_connections(db: Mesh, o: Object[AuthorizationPolicy]) -> Problems:
    """Yield a problem for each part of a policy that ztunnels cannot enforce.

    These are conditions on HTTP request attributes, and external authorizers. Policies are only checked if they apply
    to workloads whose traffic a ztunnel captures.
    """
    if not db.settings.ambient.enabled or enforced(db, o.key) is None or not captures(db, o):
        return
    if o.spec.action == "CUSTOM":
        yield warning(
            "not-enforced",
            "action",
            "ztunnels do not support external authorizers, so everything that this policy matches is denied; "
            "attach the policy to a waypoint",
        )
    for index, rule in enumerate(o.spec.rules):
        for one in request_only_fields(rule):
            outcome = f"at ztunnels, this rule {_OUTCOMES[o.spec.action]}; attach the policy to a waypoint"
            text = f"ztunnels cannot match {one.name}: {outcome}"
            yield from below(f"rules[{index}]", (warning("not-enforced", one.path, text),))


def captures(db: Mesh, o: Object[AuthorizationPolicy]) -> bool:
    """Return whether a policy selects workloads whose traffic a ztunnel captures."""
    labels = frozenset(o.spec.selector.match_labels.items()) if o.spec.selector is not None else frozenset()
    namespaces = capturing_namespaces(db) if o.namespace == root_namespace(db) else (o.namespace,)
    return any(labels <= have for namespace in namespaces for have in captured_labels(db, namespace))

"""Status conditions in ambient mode: the waypoints of services and workloads, and the proxies that enforce a policy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pilot.config.kinds.istio import AUTHORIZATION_POLICY, SERVICE_ENTRY, WORKLOAD_ENTRY
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.security.authorization_policy import AuthorizationPolicy, dry_run
from pilot.config.selector import PolicyTargetReference
from pilot.derive import derived
from pilot.mesh.ambient.attachments import service_attachment, subject_of, workload_attachment
from pilot.mesh.ambient.services import visibility_in
from pilot.mesh.ambient.waypoints import waypoint
from pilot.mesh.gateway_api.gateway_classes import WAYPOINT_CONTROLLER, gateway_class
from pilot.mesh.model.condition import StatusCondition
from pilot.mesh.model.request_only_fields import request_only_fields
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.model.waypoint import WaypointAttachment
from pilot.mesh.registry.kubernetes_services import kubernetes_hostname
from pilot.mesh.registry.service_entries import CONNECT_STRATEGY
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import root_namespace

WAYPOINT_BOUND, WAYPOINT_MISSING, VISIBILITY_APPLIED = (
    "istio.io/WaypointBound",
    "istio.io/WaypointMissing",
    "istio.io/VisibilityApplied",
)
ZTUNNEL_ACCEPTED, WAYPOINT_ACCEPTED = "ZtunnelAccepted", "WaypointAccepted"
TYPES = frozenset((WAYPOINT_BOUND, WAYPOINT_MISSING, VISIBILITY_APPLIED, ZTUNNEL_ACCEPTED, WAYPOINT_ACCEPTED))
_AT_WAYPOINTS = "In ambient mode you must use a waypoint proxy to enforce HTTP rules."


# -- services and workloads --------------------------------------------------------------------------------------------


@derived
def service_conditions(db: Mesh, key: ObjectKey) -> tuple[StatusCondition, ...]:
    """Return the conditions of a Service in the local cluster."""
    return tuple(
        _bound(
            service_attachment(
                db, ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)
            )
        )
    )


@derived
def service_entry_conditions(db: Mesh, key: ObjectKey) -> tuple[StatusCondition, ...] | None:
    """Return the conditions of a ServiceEntry, or None if it does not exist or was converted from another kind."""
    row = SERVICE_ENTRY.get(db, key)
    if row is None or row.origin is not None or not row.spec.hosts:
        return None
    attached = service_attachment(db, ServiceRef(row.spec.hosts[0], key.namespace))
    conditions = list(_bound(attached))
    if attached.waypoint is None and (
        reason := _needs_waypoint(row.spec.hosts, row.annotations.get(CONNECT_STRATEGY, ""))
    ):
        conditions.append(StatusCondition(WAYPOINT_MISSING, True, *reason))
    if service_rules(db).entry_visibility is not None and (visible := visibility_in(db, key.namespace)) != "NONE":
        public = visible != "NAMESPACE"
        text = (
            "to the entire mesh (PUBLIC)."
            if public
            else "only within its own namespace (NAMESPACE), per mesh serviceEntryVisibility."
        )
        conditions.append(
            StatusCondition(
                VISIBILITY_APPLIED, True, "Public" if public else "Namespace", f"ServiceEntry is visible {text}"
            )
        )
    return tuple(conditions)


@derived
def workload_entry_conditions(db: Mesh, key: ObjectKey) -> tuple[StatusCondition, ...] | None:
    """Return the conditions of a WorkloadEntry in the local cluster, or None if it does not exist."""
    row = WORKLOAD_ENTRY.get(db, RegistryKey(db.settings.registry.cluster_id, *key))
    if row is None:
        return None
    return tuple(_bound(workload_attachment(db, subject_of(row.namespace, {**row.spec.labels, **row.labels}))))


def _bound(attached: WaypointAttachment) -> Iterator[StatusCondition]:
    """Yield the WaypointBound condition, unless no label names a waypoint."""
    if attached.waypoint is None:
        if attached.fault is not None:
            yield StatusCondition(WAYPOINT_BOUND, False, *attached.fault)
        return
    text = f"Successfully attached to waypoint {attached.waypoint.namespace}/{attached.waypoint.name}"
    if attached.ingress:
        text += ". Ingress traffic will traverse the waypoint"
    elif attached.ingress is not None:
        text += ". Ingress traffic is not using the waypoint, "
        text += "set the istio.io/ingress-use-waypoint label to true if desired."
    if attached.fault is not None:
        text += f". Canary waypoint not attached: {attached.fault.message}"
    yield StatusCondition(WAYPOINT_BOUND, True, "WaypointAccepted", text)


def _needs_waypoint(hosts: Iterable[str], strategy: str) -> tuple[str, str] | None:
    """Return the reason and message of the WaypointMissing condition, or None if a ServiceEntry needs no waypoint."""
    if strategy:
        text = "A waypoint is required for connect strategies to take effect for ambient clients."
        return (
            "NoWaypointForRacingConnectStrategy",
            f"ServiceEntry has a non-default connect strategy but no waypoint bound. {text}",
        )
    if any(host.startswith("*") for host in hosts):
        return "NoWaypointForWildcardService", "ServiceEntry will not apply until it is bound to a valid waypoint."
    return None


# -- policies ----------------------------------------------------------------------------------------------------------


@derived
def policy_conditions(db: Mesh, key: ObjectKey) -> tuple[StatusCondition, ...] | None:
    """Return the conditions of an AuthorizationPolicy, or None if it does not exist.

    A policy with targets is enforced by waypoints, and any other policy by ztunnels.
    """
    row = AUTHORIZATION_POLICY.get(db, key)
    if row is None:
        return None
    targets = (*row.spec.target_refs, *((row.spec.target_ref,) if row.spec.target_ref is not None else ()))
    return (_at_targets(db, key.namespace, targets),) if targets else (_at_ztunnels(db, row),)


def _at_ztunnels(db: Mesh, row: Object[AuthorizationPolicy]) -> StatusCondition:
    action = row.spec.action
    if dry_run(row.annotations) and not db.settings.ambient.dry_run_policies:
        policy = f'found policy "{row.namespace}/{row.name}" using dry-run annotation'
        return _unsupported(False, f"{policy}, but support for ambient dry-run authorizationPolicies isn't enabled")
    if action == "AUDIT":
        return _unsupported(False, f"ztunnel does not support the {action} action")
    if action == "CUSTOM":
        return _unsupported(
            True, f"ztunnel does not support the {action} action, so everything that this policy matches is denied"
        )
    names = sorted({one.name for rule in row.spec.rules for one in request_only_fields(rule)})
    if not names:
        return StatusCondition(ZTUNNEL_ACCEPTED, True, "Accepted", "attached to ztunnel")
    outcome = "Within an ALLOW policy, rules matching HTTP attributes are omitted."
    if action == "DENY":
        outcome = "DENY policy with HTTP attributes is enforced without the HTTP rules."
    text = f"ztunnel does not support HTTP attributes (found: {', '.join(names)})."
    return _unsupported(True, f"{text} {_AT_WAYPOINTS} {outcome} This will be more restrictive than requested.")


def _unsupported(holds: bool, message: str) -> StatusCondition:
    return StatusCondition(ZTUNNEL_ACCEPTED, holds, "UnsupportedValue", message)


def _at_targets(db: Mesh, namespace: str, targets: tuple[PolicyTargetReference, ...]) -> StatusCondition:
    """Return one condition for all targets. Its status is true if at least one target is bound to a waypoint."""
    conditions = [(target, _at_target(db, namespace, target)) for target in targets]
    if len(conditions) == 1:
        return conditions[0][1]
    unbound = [_name(target, namespace) for target, condition in conditions if not condition.status]
    bound = len(unbound) < len(conditions)
    reason = ("PartiallyInvalid" if unbound else "Accepted") if bound else "Invalid"
    return StatusCondition(
        WAYPOINT_ACCEPTED, bound, reason, f"Invalid targetRefs: {', '.join(unbound)}" if unbound else ""
    )


def _name(target: PolicyTargetReference, namespace: str) -> str:
    return f"{target.kind}.{target.group or 'core'}:{target.namespace or namespace}/{target.name}"


def _at_target(db: Mesh, policy_namespace: str, target: PolicyTargetReference) -> StatusCondition:
    namespace = target.namespace or policy_namespace
    key, full_name = ObjectKey(namespace, target.name), f"{namespace}/{target.name}"
    if target.kind == "GatewayClass":
        return _at_class(db, namespace, target.name)
    if target.kind == "Gateway":
        if waypoint(db, key) is None:
            return StatusCondition(WAYPOINT_ACCEPTED, False, "TargetNotFound", "not bound")
        return StatusCondition(WAYPOINT_ACCEPTED, True, "Accepted", f"bound to {full_name}")
    ref = _target_service(db, target.kind, key)
    if ref is None:
        return StatusCondition(WAYPOINT_ACCEPTED, False, "TargetNotFound", f"{target.kind} {full_name} was not found")
    used = service_attachment(db, ref).waypoint
    if used is None:
        return StatusCondition(
            WAYPOINT_ACCEPTED, False, "AncestorNotBound", f"{target.kind} {full_name} is not bound to a waypoint"
        )
    return StatusCondition(WAYPOINT_ACCEPTED, True, "Accepted", f"bound to {used.namespace}/{used.name}")


def _target_service(db: Mesh, kind: str, key: ObjectKey) -> ServiceRef | None:
    if kind == "ServiceEntry":
        row = SERVICE_ENTRY.get(db, key)
        return ServiceRef(row.spec.hosts[0], key.namespace) if row is not None and row.spec.hosts else None
    if SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, *key)) is None:
        return None
    return ServiceRef(kubernetes_hostname(key.name, key.namespace, db.settings.registry.domain), key.namespace)


def _at_class(db: Mesh, namespace: str, name: str) -> StatusCondition:
    root, info = root_namespace(db), gateway_class(db, name)
    if namespace != root:
        text = f"AuthorizationPolicy must be in the root namespace `{root}` when referencing a GatewayClass"
        return StatusCondition(WAYPOINT_ACCEPTED, False, "Invalid", text)
    if info is None:
        return StatusCondition(WAYPOINT_ACCEPTED, False, "TargetNotFound", "not bound")
    if info.controller != WAYPOINT_CONTROLLER:
        return StatusCondition(
            WAYPOINT_ACCEPTED,
            False,
            "Invalid",
            f"GatewayClass must use controller name `{WAYPOINT_CONTROLLER}` for waypoints",
        )
    return StatusCondition(WAYPOINT_ACCEPTED, True, "Accepted", f"bound to {name}")

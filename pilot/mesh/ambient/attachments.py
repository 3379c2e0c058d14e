"""The waypoints that services and workloads use. Labels on a service or workload take precedence over labels on its
namespace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from pilot.config.kinds.istio import SERVICE_ENTRY
from pilot.config.kinds.kubernetes import POD, SERVICE
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import Gather, derived, hub
from pilot.mesh.ambient.waypoints import may_attach, waypoint
from pilot.mesh.model.condition import Fault
from pilot.mesh.model.service import Registry, ServiceRef
from pilot.mesh.model.visibility import NAMESPACE_NAME_LABEL, entry_visibility
from pilot.mesh.model.waypoint import (
    CANARY_WEIGHT,
    INGRESS_USE_WAYPOINT,
    NO_WAYPOINT,
    NOT_ATTACHED,
    USE_CANARY,
    USE_CANARY_NAMESPACE,
    USE_WAYPOINT,
    USE_WAYPOINT_NAMESPACE,
    Traffic,
    WaypointAttachment,
)
from pilot.mesh.registry.networks import cluster_network
from pilot.mesh.registry.service_settings import service_rules
from pilot.mesh.registry.services import service, service_refs
from pilot.mesh.security.policies import GATEWAY_NAME
from pilot.mesh.tables.clusters import is_included
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.namespaces import namespace_annotations, namespace_labels

MANAGED = "gateway.istio.io/managed"
_UNATTACHED = ("istio.io-mesh-controller", "istio.io-eastwest-controller")
"""Values of the label `MANAGED` on the Services and Pods of waypoints and east-west gateways. These do not use a
waypoint."""
_TRUE = ("1", "t", "true")


class WaypointSubjectKey(NamedTuple):
    """The properties that determine a workload's waypoint: its namespace and the relevant labels."""

    namespace: str
    labels: frozenset[tuple[str, str]] = frozenset()


_RELEVANT_LABELS = frozenset((USE_WAYPOINT, USE_WAYPOINT_NAMESPACE, GATEWAY_NAME, MANAGED))


def subject_of(namespace: str, labels: Mapping[str, str]) -> WaypointSubjectKey:
    """Return the subject key of a workload. Workloads that differ only in irrelevant labels have the same key."""
    return WaypointSubjectKey(namespace, frozenset((k, labels[k]) for k in _RELEVANT_LABELS if k in labels))


def named_waypoint(labels: Mapping[str, str], namespace: str) -> ObjectKey | None:
    """Return the waypoint that the labels of an object in `namespace` name, or None if no label names one or the name
    is "none"."""
    name = labels.get(USE_WAYPOINT, NO_WAYPOINT)
    return None if name == NO_WAYPOINT else ObjectKey(labels.get(USE_WAYPOINT_NAMESPACE, namespace), name)


# -- the waypoint of a service or workload -----------------------------------------------------------------------------


@derived
def service_attachment(db: Mesh, ref: ServiceRef) -> WaypointAttachment:
    """Return the waypoint of a service, and the waypoint's canary."""
    row = declaring_object(db, ref) if db.settings.ambient.enabled else None
    if row is None or row.labels.get(MANAGED) in _UNATTACHED:
        return NOT_ATTACHED
    key, fault = _attach(db, row.labels, ref.namespace, "service")
    if key is None:
        return WaypointAttachment(fault=fault)
    if key.namespace != ref.namespace and _stays_in_namespace(db, row):
        text = (
            "another namespace: cross-namespace waypoint binding is not permitted for a ServiceEntry "
            "with NAMESPACE visibility"
        )
        return WaypointAttachment(
            fault=Fault("CrossNamespaceWaypointForbidden", f"cannot bind to waypoint {_quote(key)} in {text}")
        )
    canary, weight, fault = _canary(db, row, key)
    return WaypointAttachment(key, fault, canary, weight, _ingress(db, row))


@derived
def workload_attachment(db: Mesh, subject: WaypointSubjectKey) -> WaypointAttachment:
    """Return the waypoint of a workload. Waypoint proxies do not use a waypoint."""
    labels = dict(subject.labels)
    if not db.settings.ambient.enabled or instance_of(db, subject) is not None:
        return NOT_ATTACHED
    key, fault = _attach(db, labels, subject.namespace, "workload")
    if fault is not None and fault.reason == "UnsupportedTrafficType" and USE_WAYPOINT not in labels:
        return NOT_ATTACHED  # the namespace's waypoint serves only services
    return WaypointAttachment(key, fault)


@derived
def instance_of(db: Mesh, subject: WaypointSubjectKey) -> ObjectKey | None:
    """Return the waypoint that a workload is an instance of, or None if the workload is not a waypoint proxy."""
    name = dict(subject.labels).get(GATEWAY_NAME)
    key = ObjectKey(subject.namespace, name) if name else None
    return key if key is not None and waypoint(db, key) is not None else None


@derived
def namespace_attachment(db: Mesh, namespace: str) -> WaypointAttachment:
    """Return the waypoint that the labels of a namespace in the local cluster name. Its traffic type is not checked."""
    if not db.settings.ambient.enabled:
        return NOT_ATTACHED
    return WaypointAttachment(*_attach(db, {}, namespace, None))


def declaring_object(db: Mesh, ref: ServiceRef) -> Object[Any] | None:
    """Return the object that declares a service: a Service in the local cluster, or a ServiceEntry. Not memoised."""
    declared = service(db, ref)
    if declared is None:
        return None
    if declared.registry is Registry.KUBERNETES:
        return SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, *declared.source))
    return SERVICE_ENTRY.get(db, declared.source)


def _attach(
    db: Mesh, labels: Mapping[str, str], namespace: str, traffic: Traffic | None
) -> tuple[ObjectKey | None, Fault | None]:
    """Return the waypoint that `labels` name. If they lack the label, the labels of the namespace apply.

    If the waypoint cannot be used, return the reason instead.
    """
    key = named_waypoint(
        labels if USE_WAYPOINT in labels else namespace_labels(db, db.settings.registry.cluster_id, namespace),
        namespace,
    )
    fault = _unusable(db, key, namespace, traffic) if key is not None else None
    return (key, None) if fault is None else (None, fault)


def _unusable(db: Mesh, key: ObjectKey, namespace: str, traffic: Traffic | None) -> Fault | None:
    target = waypoint(db, key)
    if target is None:
        return Fault("WaypointIsNotReady", f"waypoint {_quote(key)} is not ready")
    if not may_attach(db, target, namespace):
        return Fault(
            "AttachmentDenied", f"we are not permitted to attach to waypoint {_quote(key)} (missing allowedRoutes?)"
        )
    if traffic is not None and not target.serves(traffic):
        text = f'attempting to bind to traffic type "{traffic}" which the waypoint {_quote(key)} does not support'
        return Fault("UnsupportedTrafficType", text)
    return None


def _quote(key: ObjectKey) -> str:
    return f'"{key.namespace}/{key.name}"'


def _canary(db: Mesh, row: Object[Any], primary: ObjectKey) -> tuple[ObjectKey | None, int, Fault | None]:
    """Return the canary of a service's waypoint, and the canary's weight.

    Labels and annotations that the service lacks are taken from its namespace, unless the service's own labels name its
    waypoint.
    """
    labels, annotations = row.labels, row.annotations
    if USE_WAYPOINT not in labels:
        cluster = db.settings.registry.cluster_id
        if USE_CANARY not in labels:
            labels = namespace_labels(db, cluster, row.namespace)
        if CANARY_WEIGHT not in annotations:
            annotations = namespace_annotations(db, cluster, row.namespace)
    name = labels.get(USE_CANARY, "")
    if name in ("", NO_WAYPOINT):
        return None, 0, None
    key, weight = ObjectKey(labels.get(USE_CANARY_NAMESPACE, row.namespace), name), annotations.get(CANARY_WEIGHT, "0")
    if key == primary:
        return (
            None,
            0,
            Fault("CanarySameAsPrimary", f"canary waypoint {_quote(key)} must differ from the primary waypoint"),
        )
    if not (weight.isascii() and weight.isdecimal()) or int(weight) > 100:
        return (
            None,
            0,
            Fault(
                "CanaryInvalidWeight",
                f"canary waypoint {_quote(key)} has an invalid weight; must be an integer in [0,100]",
            ),
        )
    fault = _unusable(db, key, row.namespace, "service")
    return (key, int(weight), None) if fault is None else (None, 0, fault)


def _stays_in_namespace(db: Mesh, row: Object[Any]) -> bool:
    """Return whether the mesh's `serviceEntryVisibility` limits a ServiceEntry to its own namespace."""
    visibility = service_rules(db).entry_visibility
    if visibility is None or row.kind.name != "ServiceEntry":
        return False
    labels = namespace_labels(db, db.settings.registry.cluster_id, row.namespace)
    return entry_visibility(visibility, {NAMESPACE_NAME_LABEL: row.namespace, **labels}) == "NAMESPACE"


def _ingress(db: Mesh, row: Object[Any]) -> bool | None:
    """Return whether ingress gateways use a service's waypoint. Return None if neither the service nor its namespace
    has the label that decides this."""
    value = row.labels.get(INGRESS_USE_WAYPOINT)
    if value is None:
        value = namespace_labels(db, db.settings.registry.cluster_id, row.namespace).get(INGRESS_USE_WAYPOINT)
    return None if value is None else value.lower() in _TRUE


# -- users of a waypoint -----------------------------------------------------------------------------------------------


@derived
def _attached(db: Mesh, ref: ServiceRef) -> WaypointAttachment | None:
    attachment = service_attachment(db, ref)
    return attachment if attachment.waypoint is not None else None


attached_services: Gather[ServiceRef, [], WaypointAttachment] = Gather(
    "attached services", service_refs, _attached, hub=True
)
"""The attachments of the services that use a waypoint, oldest service first."""


@hub
def _services_by_waypoint(db: Mesh) -> Mapping[ObjectKey, tuple[ServiceRef, ...]]:
    out: dict[ObjectKey, list[ServiceRef]] = defaultdict(list)
    for ref, attachment in attached_services(db).items():
        for key in (attachment.waypoint, attachment.canary):
            if key is not None:
                out[key].append(ref)
    return {key: tuple(refs) for key, refs in out.items()}


@derived
def services_of_waypoint(db: Mesh, key: ObjectKey) -> tuple[ServiceRef, ...]:
    """Return the services that use a waypoint as their primary or canary waypoint, oldest first."""
    return _services_by_waypoint(db).get(key, ())


@derived
def _reachable_pods(db: Mesh) -> tuple[RegistryKey, ...]:
    """Return the Pods that ztunnels receive as workloads of their own: those in the network of the local cluster."""
    keys = POD.all_keys(db)
    network = cluster_network(db, db.settings.registry.cluster_id)
    clusters = {
        cluster
        for cluster in sorted({key.cluster for key in keys})
        if is_included(db, cluster) and cluster_network(db, cluster) == network
    }
    return tuple(key for key in keys if key.cluster in clusters)


@derived
def _waypoint_of_pod(db: Mesh, key: RegistryKey) -> ObjectKey | None:
    row = POD.get(db, key)
    return workload_attachment(db, subject_of(row.namespace, row.labels)).waypoint if row is not None else None


_attached_pods: Gather[RegistryKey, [], ObjectKey] = Gather(
    "attached pods", _reachable_pods, _waypoint_of_pod, hub=True
)


@hub
def _pods_by_waypoint(db: Mesh) -> Mapping[ObjectKey, tuple[RegistryKey, ...]]:
    out: dict[ObjectKey, list[RegistryKey]] = defaultdict(list)
    for pod, key in _attached_pods(db).items():
        out[key].append(pod)
    return {key: tuple(pods) for key, pods in out.items()}


@derived
def pods_of_waypoint(db: Mesh, key: ObjectKey) -> tuple[RegistryKey, ...]:
    """Return the Pods whose workloads use a waypoint, in all clusters on the network of the local one."""
    return _pods_by_waypoint(db).get(key, ())

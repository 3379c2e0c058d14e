"""The status of GatewayClasses, Gateways and ListenerSets."""

from __future__ import annotations

from typing import NamedTuple

from pilot.config.gateway_api.gateway import Gateway
from pilot.config.group_kind import GroupKind
from pilot.config.key_material import Flaw
from pilot.config.kinds.gateway_api import KUBERNETES_GATEWAY, LISTENER_SET
from pilot.config.kinds.kubernetes import CONFIG_MAP, SECRET
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.mesh.gateway_api.gateway_classes import gateway_class, is_foreign_class
from pilot.mesh.gateway_api.gateways import (
    allows_listener_sets,
    attached_listener_sets,
    gateway_class_of,
    parent_gateway,
    routers_of,
)
from pilot.mesh.gateway_api.generated_names import listener_gateway
from pilot.mesh.gateway_api.listeners import GatewayListener, listeners_of
from pilot.mesh.gateway_api.reference_grants import ReferenceKey, may_refer
from pilot.mesh.gateway_api.supported_features import GATEWAY_FEATURES
from pilot.mesh.model.condition import Fault, StatusCondition, condition
from pilot.mesh.model.credential_key import CredentialKey
from pilot.mesh.registry.gateway_addresses import GatewayAddresses, find_addresses
from pilot.mesh.status.route_status import attached_routes
from pilot.mesh.tables.credentials import credential
from pilot.mesh.tables.database import Mesh


class ListenerStatus(NamedTuple):
    """The status of a listener. `attached` is the number of routes that are attached to it."""

    name: str
    port: int
    kinds: tuple[GroupKind, ...]
    attached: int
    conditions: tuple[StatusCondition, ...]


class GatewayStatus(NamedTuple):
    """The status of a Gateway or ListenerSet.

    `addresses` are IP addresses and hostnames. `sets` is the number of attached ListenerSets with valid listeners.
    """

    conditions: tuple[StatusCondition, ...]
    listeners: tuple[ListenerStatus, ...] = ()
    addresses: tuple[str, ...] = ()
    sets: int = 0


@derived
def class_status(db: Mesh, name: str) -> tuple[StatusCondition, ...] | None:
    """Return the conditions of a GatewayClass, or None if the class belongs to another controller."""
    if gateway_class(db, name) is None or is_foreign_class(db, name):
        return None
    return (
        StatusCondition("Accepted", True, "Accepted", "Handled by Istio controller"),
        StatusCondition("SupportedVersion", True, "SupportedVersion", "Gateway API CRD version is supported"),
    )


@derived
def class_features(db: Mesh, name: str) -> tuple[str, ...]:
    """Return the features that a GatewayClass reports. Classes without Gateways at the edge of the mesh report none."""
    info = gateway_class(db, name)
    return GATEWAY_FEATURES if info is not None and info.controller == db.settings.gateway_api.controller else ()


def _listeners(db: Mesh, kind: GroupKind, key: ObjectKey) -> tuple[tuple[GatewayListener, ListenerStatus], ...]:
    return tuple((listener, _listener(db, key, listener)) for listener in listeners_of(db, kind, key))


def _listener(db: Mesh, owner: ObjectKey, listener: GatewayListener) -> ListenerStatus:
    place = f"{owner.namespace}/{listener_gateway(owner.name, listener.section)}", listener.section
    return ListenerStatus(
        listener.section, listener.port, listener.kinds, attached_routes(db, place), listener.conditions
    )


@derived
def gateway_status(db: Mesh, key: ObjectKey) -> GatewayStatus | None:
    """Return the status of a Gateway, or None if the Gateway belongs to another controller."""
    row, info = KUBERNETES_GATEWAY.get(db, key), gateway_class_of(db, key)
    if row is None or info is None:
        return None
    if not info.programmed:
        remote = StatusCondition("Programmed", True, "Programmed", "This Gateway is remote; Istio will not program it")
        accepted = StatusCondition("Accepted", True, "Accepted", "Resource accepted")
        return GatewayStatus((accepted, remote), (), tuple(address.value for address in row.spec.addresses))
    listeners = _listeners(db, KUBERNETES_GATEWAY.id, key)
    valid = [listener for listener, _ in listeners if listener.valid]
    routers = routers_of(db, key)
    sets = [
        listener_set
        for listener_set in attached_listener_sets(db, key)
        if any(listener.valid for listener in listeners_of(db, LISTENER_SET.id, listener_set))
    ]
    ports = {listener.port for listener in valid}.union(
        listener.port
        for listener_set in sets
        for listener in listeners_of(db, LISTENER_SET.id, listener_set)
        if listener.valid
    )
    addresses = find_addresses(db, routers.services, key.namespace, tuple(sorted(ports)))
    fault = routers.fault or _parameters_fault(db, row)
    conditions = [
        _accepted(fault, len(valid), len(listeners)),
        _programmed(addresses, bool(routers.services)),
        condition("ResolvedRefs", _client_certificate_fault(db, row), "ResolvedRefs", "All references resolved"),
    ]
    if _allows_insecure_fallback(row.spec):
        message = "Gateway is operating in AllowInsecureFallback mode for frontend validation"
        conditions.append(StatusCondition("InsecureFrontendValidationMode", True, "ConfigurationChanged", message))
    return GatewayStatus(
        tuple(conditions),
        tuple(status for _, status in listeners),
        addresses.status_addresses(info.addresses),
        len(sets),
    )


def _accepted(fault: Fault | None, valid: int, count: int) -> StatusCondition:
    if fault is None and count and not valid:
        fault = Fault("ListenersNotValid", "None of the Gateway's listeners are valid")
    if fault is None and valid < count:
        return StatusCondition(
            "Accepted", True, "ListenersNotValid", "One or more of the Gateway's listeners are invalid"
        )
    return condition("Accepted", fault, "Accepted", "Resource accepted")


def _programmed(addresses: GatewayAddresses, requested: bool) -> StatusCondition:
    if not requested:
        return StatusCondition("Programmed", False, "UnsupportedAddress", "Failed to assign to any requested addresses")
    if addresses.warnings:
        reason = "AddressNotAssigned" if addresses.usable else "AddressNotUsable"
        message = "; ".join(addresses.warnings)
        if addresses.internal:
            message = (
                f"Assigned to service(s) {' and '.join(addresses.internal)}, "
                f"but failed to assign to all requested addresses: {message}"
            )
        else:
            message = f"Failed to assign to any requested addresses: {message}"
        return StatusCondition("Programmed", False, reason, message)
    summary = (
        f"Resource programmed, assigned to service(s) {' and '.join(addresses.internal)}"
        if addresses.internal
        else "Resource programmed"
    )
    return StatusCondition("Programmed", True, "Programmed", summary)


def _parameters_fault(db: Mesh, row: Object[Gateway]) -> Fault | None:
    ref = row.spec.infrastructure.parameters_ref if row.spec.infrastructure is not None else None
    if ref is None:
        return None
    if (ref.group, ref.kind) != CONFIG_MAP.id:
        return Fault(
            "InvalidParameters",
            f"Unsupported parametersRef group/kind {ref.group}/{ref.kind}, only ConfigMap is supported",
        )
    if CONFIG_MAP.get(db, RegistryKey(db.settings.registry.cluster_id, row.namespace, ref.name)) is None:
        return Fault("InvalidParameters", f"parametersRef ConfigMap {row.namespace}/{ref.name} does not exist")
    return None


def _client_certificate_fault(db: Mesh, row: Object[Gateway]) -> Fault | None:
    """Return the fault of the client certificate that a Gateway presents to backends, or None if there is none."""
    backend = row.spec.tls.backend if row.spec.tls is not None else None
    ref = backend.client_certificate_ref if backend is not None else None
    if ref is None:
        return None
    namespace = ref.namespace or row.namespace
    if not may_refer(db, ReferenceKey(KUBERNETES_GATEWAY.id, row.namespace, SECRET.id, namespace, ref.name)):
        return Fault(
            "RefNotPermitted",
            f"clientCertificateRef {namespace}/{ref.name} not accessible to a Gateway (missing a ReferenceGrant?)",
        )
    if (ref.group, ref.kind) != SECRET.id:
        return Fault(
            "InvalidClientCertificateRef",
            f"invalid clientCertificateRef {ref.group}/{ref.kind}/{ref.name}, only secret is allowed",
        )
    material = credential(
        db, CredentialKey("gateway Secret", namespace, ref.name), db.settings.registry.cluster_id, False
    )
    if material is None:
        return Fault(
            "InvalidClientCertificateRef", f"invalid clientCertificateRef, secret {namespace}/{ref.name} not found"
        )
    return (
        Fault("InvalidClientCertificateRef", f"invalid clientCertificateRef, {material.path} {material.reason}")
        if isinstance(material, Flaw)
        else None
    )


def _allows_insecure_fallback(spec: Gateway) -> bool:
    frontend = spec.tls.frontend if spec.tls is not None else None
    settings = (frontend.default, *(tls.tls for tls in frontend.per_port)) if frontend is not None else ()
    return any(tls.validation is not None and tls.validation.mode == "AllowInsecureFallback" for tls in settings)


@derived
def listener_set_status(db: Mesh, key: ObjectKey) -> GatewayStatus | None:
    """Return the status of a ListenerSet, or None if its Gateway does not exist or belongs to another controller."""
    gateway_key = parent_gateway(db, key)
    gateway = KUBERNETES_GATEWAY.get(db, gateway_key) if gateway_key is not None else None
    info = gateway_class_of(db, gateway_key) if gateway_key is not None else None
    if gateway_key is None or gateway is None or info is None:
        return None
    if not info.listener_sets:
        return _not_allowed(f'The "{info.name}" GatewayClass does not support ListenerSet')
    if not allows_listener_sets(db, gateway, key.namespace):
        return _not_allowed("The parent Gateway does not allow this reference; check the 'spec.allowedListeners'")
    listeners, routers = _listeners(db, LISTENER_SET.id, key), routers_of(db, gateway_key)
    valid = [listener for listener, _ in listeners if listener.valid]
    invalid = None if valid else Fault("ListenersNotValid", "None of the ListenerSet's listeners are valid")
    parent = (
        Fault(routers.fault.reason, f"Parent not accepted: {routers.fault.message}")
        if routers.fault is not None
        else None
    )
    addresses = find_addresses(
        db, routers.services, gateway_key.namespace, tuple(sorted({listener.port for listener in valid}))
    )
    programmed = (
        StatusCondition("Programmed", False, *invalid)
        if invalid is not None
        else _programmed(addresses, bool(routers.services))
    )
    return GatewayStatus(
        (condition("Accepted", parent or invalid, "Accepted", "Resource accepted"), programmed),
        tuple(status for _, status in listeners),
    )


def _not_allowed(message: str) -> GatewayStatus:
    return GatewayStatus(
        tuple(StatusCondition(name, False, "NotAllowed", message) for name in ("Accepted", "Programmed"))
    )

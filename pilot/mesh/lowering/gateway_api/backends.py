"""Resolves the backend references of routes to destinations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from pilot.config.gateway_api.reference import BackendObjectReference
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.kinds.gateway_api import BACKEND, INFERENCE_POOL
from pilot.config.kinds.kubernetes import SERVICE
from pilot.config.networking.virtual_service import Destination, PortSelector
from pilot.config.object import EndpointPicker, ObjectKey, RegistryKey
from pilot.derive import derived
from pilot.mesh.gateway_api.reference_grants import ReferenceKey, may_refer
from pilot.mesh.lowering.gateway_api.external_backends import external_backend
from pilot.mesh.lowering.gateway_api.inference_pools import endpoint_picker_of, shadow_ref
from pilot.mesh.model.condition import Fault
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

HOSTNAME = GroupKind(NETWORKING, "Hostname")
_IMPORT = "ServiceImport"
NO_DESTINATION = Destination()
"""Destination of requests to an invalid backend. These requests receive an error response."""


class Backend(NamedTuple):
    """A resolved backend.

    If there is a fault and no destination, the whole route is invalid. If there is a fault and a destination, the
    backend's share of requests receives an error response.
    """

    destination: Destination | None = None
    fault: Fault | None = None
    picker: EndpointPicker | None = None


class BackendKey(NamedTuple):
    """A backend reference in routes of one kind in one namespace.

    If `mesh` is True, the reference is resolved for clients in the mesh, which need no ReferenceGrants.
    """

    route: GroupKind
    namespace: str
    mesh: bool
    to: BackendObjectReference


Backends = Mapping[BackendObjectReference, Backend]


@derived
def backend(db: Mesh, key: BackendKey) -> Backend:
    """Return the backend that a route's reference resolves to."""
    to = key.to
    kind, namespace = GroupKind(to.group, to.kind), to.namespace or key.namespace
    if not key.mesh and not may_refer(db, ReferenceKey(key.route, key.namespace, kind, namespace, to.name)):
        message = (
            f"backendRef {to.name}/{namespace} not accessible to a {key.route.name} "
            f'in namespace "{key.namespace}" (missing a ReferenceGrant?)'
        )
        return Backend(NO_DESTINATION, Fault("RefNotPermitted", message))
    if kind == SERVICE.id or to.kind == _IMPORT:
        return _service(db, to, namespace)
    if kind == HOSTNAME:
        return _hostname(db, to, namespace)
    if kind == INFERENCE_POOL.id:
        return _pool(db, to, namespace)
    if kind == BACKEND.id:
        return _external(db, to, namespace)
    return Backend(
        NO_DESTINATION, Fault("InvalidKind", f'referencing unsupported backendRef: group "{to.group}" kind "{to.kind}"')
    )


def _service(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    if "." in to.name:
        return Backend(
            None,
            Fault(
                "InvalidDestination", "service name invalid; the name of the Service must be used, not the hostname."
            ),
        )
    host = f"{to.name}.{namespace}.svc.{db.settings.registry.domain}"
    exists = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, namespace, to.name)) is not None
    return _at(to, host, exists)


def _hostname(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    if to.namespace is not None:
        return Backend(None, Fault("InvalidDestination", "namespace may not be set with Hostname type"))
    return _at(to, to.name, service(db, ServiceRef(to.name, namespace)) is not None)


def _external(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    """Return the backend of an XBackend. The XBackend itself defines the port."""
    if not db.settings.gateway_api.alpha:
        return Backend(
            NO_DESTINATION,
            Fault("InvalidKind", "XBackend is not enabled; set PILOT_ENABLE_ALPHA_GATEWAY_API to enable it"),
        )
    external = external_backend(db, ObjectKey(namespace, to.name))
    if external is None:
        return Backend(NO_DESTINATION, Fault("BackendNotFound", f"backend({to.name}) not found"))
    if not external.host:
        return Backend(
            NO_DESTINATION,
            Fault(
                "InvalidKind",
                f"backend({to.name}): {external.accepted.message if external.accepted is not None else 'no host'}",
            ),
        )
    if to.port not in (None, external.port):
        return Backend(
            NO_DESTINATION,
            Fault("BackendNotFound", f"backend({to.name}) does not expose port {to.port}, expected {external.port}"),
        )
    return Backend(Destination(host=external.host, port=PortSelector(number=external.port)))


def _pool(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    """Return the backend of an InferencePool: the first port of its shadow Service, which has the endpoints of all
    ports."""
    if not db.settings.gateway_api.inference:
        return Backend(
            NO_DESTINATION,
            Fault(
                "InvalidKind", "InferencePool is not enabled; set ENABLE_GATEWAY_API_INFERENCE_EXTENSION to enable it"
            ),
        )
    if "." in to.name:
        return Backend(
            None, Fault("InvalidDestination", "the name of the InferencePool must be used, not the hostname.")
        )
    if INFERENCE_POOL.get(db, ObjectKey(namespace, to.name)) is None:
        return Backend(NO_DESTINATION, Fault("BackendNotFound", f"backend({to.name}) not found"))
    ref = shadow_ref(db, namespace, to.name)
    shadow = service(db, ref)
    if shadow is None or not shadow.ports:
        return Backend(NO_DESTINATION, Fault("BackendNotFound", f"backend({ref.hostname}) not found"))
    picker = endpoint_picker_of(db, shadow)
    if picker is None:
        return Backend(
            NO_DESTINATION,
            Fault(
                "InvalidDestination", "the labels of the InferencePool's shadow Service do not name an endpoint picker"
            ),
        )
    return Backend(Destination(host=ref.hostname, port=PortSelector(number=shadow.ports[0].number)), picker=picker)


def _at(to: BackendObjectReference, host: str, exists: bool) -> Backend:
    if to.port is None:
        return Backend(None, Fault("InvalidDestination", "port is required in backendRef"))
    fault = None if exists else Fault("BackendNotFound", f"backend({host}) not found")
    return Backend(Destination(host=host, port=PortSelector(number=to.port)), fault)

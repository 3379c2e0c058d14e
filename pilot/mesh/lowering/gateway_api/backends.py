"""Backends of routes: the service that a reference means, or why it means none."""

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
from pilot.mesh.gateway_api.references import ReferenceKey, may_refer
from pilot.mesh.lowering.gateway_api.external_backends import external_backend
from pilot.mesh.lowering.gateway_api.inference_pools import picker_of, shadow_ref
from pilot.mesh.model.condition import Fault
from pilot.mesh.model.service import ServiceRef
from pilot.mesh.registry.services import service
from pilot.mesh.tables.database import Mesh

HOSTNAME = GroupKind(NETWORKING, "Hostname")
_IMPORT = "ServiceImport"
NOWHERE = Destination()
"""What requests to an invalid backend are sent to: they are answered with an error."""


class Backend(NamedTuple):
    """A backend. With a fault and no destination the route as a whole cannot be; with both its share of requests is answered with an error."""

    destination: Destination | None = None
    fault: Fault | None = None
    picker: EndpointPicker | None = None


class BackendKey(NamedTuple):
    """A reference of a route: of its kind and namespace, to an object. `mesh`: for clients in the mesh, which may reach any service anyway."""

    route: GroupKind
    namespace: str
    mesh: bool
    to: BackendObjectReference


Backends = Mapping[BackendObjectReference, Backend]


@derived
def backend(db: Mesh, key: BackendKey) -> Backend:
    """Returns what a reference of a route to a backend means."""
    to = key.to
    kind, namespace = GroupKind(to.group, to.kind), to.namespace or key.namespace
    if not key.mesh and not may_refer(db, ReferenceKey(key.route, key.namespace, kind, namespace, to.name)):
        message = f'backendRef {to.name}/{namespace} not accessible to a {key.route.name} in namespace "{key.namespace}" (missing a ReferenceGrant?)'
        return Backend(NOWHERE, Fault("RefNotPermitted", message))
    if kind == SERVICE.id or to.kind == _IMPORT:
        return _service(db, to, namespace)
    if kind == HOSTNAME:
        return _hostname(db, to, namespace)
    if kind == INFERENCE_POOL.id:
        return _pool(db, to, namespace)
    if kind == BACKEND.id:
        return _external(db, to, namespace)
    return Backend(
        NOWHERE, Fault("InvalidKind", f'referencing unsupported backendRef: group "{to.group}" kind "{to.kind}"')
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
    found = SERVICE.get(db, RegistryKey(db.settings.registry.cluster_id, namespace, to.name)) is not None
    return _at(to, host, found)


def _hostname(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    if to.namespace is not None:
        return Backend(None, Fault("InvalidDestination", "namespace may not be set with Hostname type"))
    return _at(to, to.name, service(db, ServiceRef(to.name, namespace)) is not None)


def _external(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    """Returns what an XBackend means, which has its port itself."""
    if not db.settings.gateway_api.alpha:
        return Backend(
            NOWHERE, Fault("InvalidKind", "XBackends are not obeyed; PILOT_ENABLE_ALPHA_GATEWAY_API switches them on")
        )
    found = external_backend(db, ObjectKey(namespace, to.name))
    if found is None:
        return Backend(NOWHERE, Fault("BackendNotFound", f"backend({to.name}) not found"))
    if not found.host:
        return Backend(
            NOWHERE,
            Fault(
                "InvalidKind",
                f"backend({to.name}): {found.accepted.message if found.accepted is not None else 'no host'}",
            ),
        )
    if to.port not in (None, found.port):
        return Backend(
            NOWHERE,
            Fault("BackendNotFound", f"backend({to.name}) does not expose port {to.port}, expected {found.port}"),
        )
    return Backend(Destination(host=found.host, port=PortSelector(number=found.port)))


def _pool(db: Mesh, to: BackendObjectReference, namespace: str) -> Backend:
    """Returns what an InferencePool means: its first port, behind which are the endpoints of all of them."""
    if not db.settings.gateway_api.inference:
        return Backend(
            NOWHERE,
            Fault("InvalidKind", "InferencePool is not enabled; ENABLE_GATEWAY_API_INFERENCE_EXTENSION switches it on"),
        )
    if "." in to.name:
        return Backend(
            None, Fault("InvalidDestination", "the name of the InferencePool must be used, not the hostname.")
        )
    if INFERENCE_POOL.get(db, ObjectKey(namespace, to.name)) is None:
        return Backend(NOWHERE, Fault("BackendNotFound", f"backend({to.name}) not found"))
    ref = shadow_ref(db, namespace, to.name)
    found = service(db, ref)
    if found is None or not found.ports:
        return Backend(NOWHERE, Fault("BackendNotFound", f"backend({ref.hostname}) not found"))
    picker = picker_of(db, found)
    if picker is None:
        return Backend(
            NOWHERE,
            Fault("InvalidDestination", "the labels of the InferencePool's service do not say who picks its endpoints"),
        )
    return Backend(Destination(host=ref.hostname, port=PortSelector(number=found.ports[0].number)), picker=picker)


def _at(to: BackendObjectReference, host: str, found: bool) -> Backend:
    if to.port is None:
        return Backend(None, Fault("InvalidDestination", "port is required in backendRef"))
    fault = None if found else Fault("BackendNotFound", f"backend({host}) not found")
    return Backend(Destination(host=host, port=PortSelector(number=to.port)), fault)

"""Configuration objects as resources, for clients that ask for them by group/version/Kind."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from pilot.config.group_kind import NETWORKING
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.plain import plain
from pilot.derive import Gather, derived
from pilot.envoy.resource import Resource
from pilot.mcp.object_types import ObjectType
from pilot.mcp.wire import RESOURCE, encode_object
from pilot.mesh.model.service import Registry, Resolution, Service, ServiceRef
from pilot.mesh.registry.services import service, visible_refs
from pilot.mesh.tables.database import Mesh
from pilot.mesh.tables.mesh_config import mesh_config, root_namespace
from pilot.mesh.tables.objects import find_object, object_keys
from protos.istio import mesh_config_pb2

SYNTHETIC = "synthetic-"
"""What the names of ServiceEntries begin with that stand for Services of Kubernetes."""
_ENTRY = ObjectType(NETWORKING, "v1", "ServiceEntry")
_RESOLUTION = {
    Resolution.CLIENT_SIDE_LB: "STATIC",
    Resolution.DNS_LB: "DNS",
    Resolution.DNS_ROUND_ROBIN_LB: "DNS_ROUND_ROBIN",
    Resolution.DYNAMIC_DNS: "DYNAMIC_DNS",
}
"""That of other services is NONE."""


@derived
def _object(db: Mesh, key: ObjectKey | RegistryKey, table: str) -> Resource | None:
    """Returns an object as the message of its kind."""
    found = find_object(db, table, key)
    return _resource(found, plain(found.spec)) if found is not None else None


objects: Gather[ObjectKey | RegistryKey, [str], Resource] = Gather("objects", object_keys, _object)


def _resource(o: Object[Any], spec: dict[str, Any]) -> Resource:
    metadata = {
        "namespace": o.namespace,
        "name": o.name,
        "labels": o.labels,
        "annotations": o.annotations,
        "creationTimestamp": o.created,
    }
    return Resource(
        f"{o.namespace}/{o.name}", RESOURCE, encode_object(ObjectType(o.kind.group, "", o.kind.name), metadata, spec)
    )


@derived
def _services(db: Mesh) -> tuple[ServiceRef, ...]:
    """Returns the services that the mesh's root namespace sees, as those who ask are of it."""
    return visible_refs(db, root_namespace(db))


@derived
def _service_as_entry(db: Mesh, ref: ServiceRef) -> Resource | None:
    """Returns a Service of Kubernetes as the ServiceEntry that would declare it, without endpoints; None for what is one already."""
    found = service(db, ref)
    if found is None or found.registry is not Registry.KUBERNETES:
        return None
    name = SYNTHETIC + found.name
    metadata = {"namespace": found.namespace, "name": name, "creationTimestamp": found.created}
    return Resource(f"{found.namespace}/{name}", RESOURCE, encode_object(_ENTRY, metadata, _entry(found)))


services_as_entries: Gather[ServiceRef, [], Resource] = Gather("services as entries", _services, _service_as_entry)


def _entry(s: Service) -> dict[str, Any]:
    return {
        "hosts": [s.hostname],
        "addresses": [*dict.fromkeys((*s.addresses, *(a for _, listed in s.cluster_addresses for a in listed)))],
        "subjectAltNames": list(s.service_accounts),
        "exportTo": sorted(s.export_to),
        "location": "MESH_EXTERNAL" if s.mesh_external else "MESH_INTERNAL",
        "resolution": _RESOLUTION.get(s.resolution, "NONE"),
        "ports": [{"number": port.number, "name": port.name, "protocol": str(port.protocol)} for port in s.ports],
        **({"workloadSelector": {"labels": dict(s.selector)}} if s.selector else {}),
    }


@derived
def mesh_config_resource(db: Mesh) -> dict[str, Resource]:
    """Returns the mesh config in force, which is sent as itself and not as an object."""
    message = json_format.ParseDict(
        plain(mesh_config(db), whole=True), mesh_config_pb2.MeshConfig(), ignore_unknown_fields=True
    )
    return {"": Resource.of(f"type.googleapis.com/{message.DESCRIPTOR.full_name}", message, "")}

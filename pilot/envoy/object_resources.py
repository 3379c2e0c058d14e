"""Converts configuration objects to resources, for clients that request them by group/version/Kind (MCP over xDS)."""

from __future__ import annotations

from typing import Any

from google.protobuf import json_format

from pilot.config.builtins import to_builtins
from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.object import Object, ObjectKey, RegistryKey
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
"""Prefix of the names of ServiceEntries that represent Kubernetes Services."""
_ENTRY = ObjectType(NETWORKING, "v1", "ServiceEntry")
_RESOLUTION = {
    Resolution.CLIENT_SIDE_LB: "STATIC",
    Resolution.DNS_LB: "DNS",
    Resolution.DNS_ROUND_ROBIN_LB: "DNS_ROUND_ROBIN",
    Resolution.DYNAMIC_DNS: "DYNAMIC_DNS",
}
"""The `resolution` values of ServiceEntries. Resolutions that are missing here are converted to NONE."""


@derived
def _object(db: Mesh, key: ObjectKey | RegistryKey, kind: GroupKind) -> Resource | None:
    """Return the resource for an object, or None if the object does not exist."""
    row = find_object(db, kind, key)
    return _resource(row, to_builtins(row.spec)) if row is not None else None


objects: Gather[ObjectKey | RegistryKey, [GroupKind], Resource] = Gather("objects", object_keys, _object)


def _resource(row: Object[Any], spec: dict[str, Any]) -> Resource:
    metadata = {
        "namespace": row.namespace,
        "name": row.name,
        "labels": row.labels,
        "annotations": row.annotations,
        "creationTimestamp": row.created,
    }
    return Resource(
        f"{row.namespace}/{row.name}",
        RESOURCE,
        encode_object(ObjectType(row.kind.group, "", row.kind.name), metadata, spec),
    )


@derived
def _services(db: Mesh) -> tuple[ServiceRef, ...]:
    """Return the services that are visible in the root namespace.

    Clients are assumed to be in this namespace.
    """
    return visible_refs(db, root_namespace(db))


@derived
def _service_as_entry(db: Mesh, ref: ServiceRef) -> Resource | None:
    """Return a Kubernetes Service as an equivalent ServiceEntry without endpoints.

    Return None for services that are not Kubernetes Services.
    """
    row = service(db, ref)
    if row is None or row.registry is not Registry.KUBERNETES:
        return None
    name = SYNTHETIC + row.name
    metadata = {"namespace": row.namespace, "name": name, "creationTimestamp": row.created}
    return Resource(f"{row.namespace}/{name}", RESOURCE, encode_object(_ENTRY, metadata, _entry(row)))


services_as_entries: Gather[ServiceRef, [], Resource] = Gather("services as entries", _services, _service_as_entry)


def _entry(service: Service) -> dict[str, Any]:
    return {
        "hosts": [service.hostname],
        "addresses": [
            *dict.fromkeys((*service.addresses, *(ip for _, ips in service.cluster_addresses for ip in ips)))
        ],
        "subjectAltNames": list(service.service_accounts),
        "exportTo": sorted(service.export_to),
        "location": "MESH_EXTERNAL" if service.mesh_external else "MESH_INTERNAL",
        "resolution": _RESOLUTION.get(service.resolution, "NONE"),
        "ports": [{"number": port.number, "name": port.name, "protocol": str(port.protocol)} for port in service.ports],
        **({"workloadSelector": {"labels": dict(service.selector)}} if service.selector else {}),
    }


@derived
def mesh_config_resource(db: Mesh) -> dict[str, Resource]:
    """Return the effective mesh config as a single resource without a name. It is not wrapped in an object."""
    message = json_format.ParseDict(
        to_builtins(mesh_config(db), with_defaults=True), mesh_config_pb2.MeshConfig(), ignore_unknown_fields=True
    )
    return {"": Resource.of(f"type.googleapis.com/{message.DESCRIPTOR.full_name}", message, "")}

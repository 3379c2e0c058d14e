"""The OpenAPI v2 document for kubectl before 1.27: protobuf, with only the query parameters that the server supports.

The messages are those of gnostic's OpenAPIv2.proto:
https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto
"""

from __future__ import annotations

from testing.apiserver.resource import Resource, Resources

PATH = "/openapi/v2"
MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def openapi_v2(resources: Resources) -> bytes:
    info = _field(1, b"Kubernetes") + _field(2, b"v1.34.0")
    paths = b"".join(_field(2, _path(resource, version)) for resource in resources for version in resource.versions)
    return _field(1, b"2.0") + _field(2, info) + _field(8, paths)


def _path(resource: Resource, version: str) -> bytes:
    """Return a named path with the PATCH operation of its objects."""
    path = f"{resource.path('{namespace}' if resource.namespaced else '', version)}/{{name}}"
    group_version_kind = f"group: {resource.group!r}\nkind: {resource.kind}\nversion: {version}\n"
    extension = _field(1, b"x-kubernetes-group-version-kind") + _field(2, _field(2, group_version_kind.encode()))
    patch = b"".join(_field(8, _query(name)) for name in ("dryRun", "fieldManager", "force")) + _field(13, extension)
    return _field(1, path.encode()) + _field(2, _field(8, patch))


def _query(name: str) -> bytes:
    """Return a query parameter."""
    return _field(1, _field(2, _field(3, _field(2, b"query") + _field(4, name.encode()) + _field(6, b"string"))))


def _field(number: int, value: bytes) -> bytes:
    """Return a length-delimited field of a message."""
    return bytes([number << 3 | 2]) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

"""OpenAPI v3 documents: the query parameters that clients look for, and the schemas of CustomResourceDefinitions."""

from __future__ import annotations

from typing import Any

from testing.apiserver.resource import Resource, Resources

_PARAMETERS = [
    {"name": name, "in": "query", "schema": {"type": "string"}}
    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
]


def openapi(path: str, resources: Resources) -> dict[str, Any] | None:
    """Return the document at a path below /openapi/v3, or None if there is none."""
    prefix = "/openapi/v3"
    if path == prefix:
        versions = {_base(resource, version) for resource in resources for version in resource.versions}
        return {"paths": {base: {"serverRelativeURL": f"{prefix}/{base}?hash=1"} for base in sorted(versions)}}
    if not path.startswith(prefix + "/"):
        return None
    base = path.removeprefix(prefix + "/")
    served = [
        (resource, version)
        for resource in resources
        for version in resource.versions
        if _base(resource, version) == base
    ]
    paths = {path: item for resource, version in served for path, item in _paths(resource, version).items()}
    schemas = {_name(resource, version): _schema(resource, version) for resource, version in served}
    header = {"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.34.0"}}
    return {**header, "paths": paths, "components": {"schemas": schemas}} if served else None


def _base(resource: Resource, version: str) -> str:
    return f"apis/{resource.group}/{version}" if resource.group else f"api/{version}"


def _name(resource: Resource, version: str) -> str:
    return ".".join([*reversed((resource.group or "core").split(".")), version, resource.kind])


def _group_version_kind(resource: Resource, version: str) -> dict[str, str]:
    return {"group": resource.group, "version": version, "kind": resource.kind}


def _schema(resource: Resource, version: str) -> dict[str, Any]:
    schema: dict[str, Any] = resource.schemas.get(version) or {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    return {**schema, "x-kubernetes-group-version-kind": [_group_version_kind(resource, version)]}


def _paths(resource: Resource, version: str) -> dict[str, Any]:
    collection = resource.path("{namespace}" if resource.namespaced else "", version)
    method = {
        "x-kubernetes-group-version-kind": _group_version_kind(resource, version),
        "parameters": _PARAMETERS,
        "responses": {"200": {"description": "OK"}},
    }
    return {
        collection: {"post": {**method, "x-kubernetes-action": "post"}},
        f"{collection}/{{name}}": {
            "patch": {**method, "x-kubernetes-action": "patch"},
            "put": {**method, "x-kubernetes-action": "put"},
        },
    }

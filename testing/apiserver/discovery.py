"""Discovery documents: the groups, versions and resources that are served."""

from __future__ import annotations

from typing import Any

from testing.apiserver.resource import Resource, Resources

VERSION = {"major": "1", "minor": "34", "gitVersion": "v1.34.0", "platform": "linux/amd64"}
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def discovery(path: str, resources: Resources) -> dict[str, Any] | None:
    """Return the document at a path, or None if there is none."""
    parts = tuple(part for part in path.split("/") if part)
    match parts:
        case ("version",):
            return VERSION
        case ("api",):
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ("apis",):
            groups = sorted({resource.group for resource in resources if resource.group})
            return {
                "kind": "APIGroupList",
                "apiVersion": "v1",
                "groups": [_group(resources, group) for group in groups],
            }
        case ("apis", group) if any(resource.group == group for resource in resources):
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(resources, group)}
        case ("api", "v1"):
            return _resources(resources, "", "v1")
        case ("apis", group, version) if any(r.group == group and version in r.versions for r in resources):
            return _resources(resources, group, version)
    return None


def _group(resources: Resources, group: str) -> dict[str, Any]:
    versions = dict.fromkeys(
        version for resource in resources if resource.group == group for version in resource.versions
    )
    entries = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _resources(resources: Resources, group: str, version: str) -> dict[str, Any]:
    entries = [entry for r in resources if r.group == group and version in r.versions for entry in _entries(r)]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{group}/{version}".removeprefix("/"),
        "resources": entries,
    }


def _entries(resource: Resource) -> list[dict[str, Any]]:
    entry = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
    }
    main = {**entry, "verbs": ["create"] if resource.create_only else _VERBS, "shortNames": list(resource.short_names)}
    subresources = [name for name, enabled in (("status", resource.status), ("scale", resource.scale)) if enabled]
    return [
        main,
        *(
            {**entry, "name": f"{resource.plural}/{name}", "verbs": ["get", "patch", "update"], "singularName": ""}
            for name in subresources
        ),
    ]

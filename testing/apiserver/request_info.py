"""The verb and the resource of a request, parsed from its method and path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from testing.apiserver.resource import Resource, Resources
from testing.apiserver.status_error import StatusError
from testing.apiserver.store import Name

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
_FLAGS = ("true", "1", "True")


class RequestInfo(NamedTuple):
    """A request for a resource. `name` is "" for the collection."""

    verb: str
    resource: Resource
    version: str
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, str]

    @property
    def key(self) -> Name:
        return self.namespace, self.name

    @property
    def dry_run(self) -> bool:
        return bool(self.query.get("dryRun"))

    def flag(self, name: str) -> bool:
        return self.query.get(name) in _FLAGS


def parse(method: str, path: str, query: Mapping[str, str], resources: Resources) -> RequestInfo:
    """Return the verb and resource of a request. Raise StatusError with 404 if the path is not served."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, rest = "", parts[1:]
    elif parts[:1] == ["apis"] and len(parts) > 2:
        group, rest = parts[1], parts[2:]
    else:
        raise StatusError(404, "the server could not find the requested resource")
    version, *rest = rest or [""]
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces" and resources.find(group, rest[2], version) is not None:
        namespace, rest = rest[1], rest[2:]
    resource = resources.find(group, rest[0], version) if rest else None
    if resource is None or len(rest) > 3:
        raise StatusError(404, "the server could not find the requested resource")
    name, subresource = (*rest[1:], "", "")[:2]
    return RequestInfo(_verb(method, name, query), resource, version, namespace, name, subresource, query)


def _verb(method: str, name: str, query: Mapping[str, str]) -> str:
    if method in ("GET", "HEAD"):
        return "watch" if query.get("watch") in _FLAGS else "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    if method not in _VERBS:
        raise StatusError(405, f"the server does not allow this method: {method}")
    return _VERBS[method]

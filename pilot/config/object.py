"""Configuration objects in tables. They have the decoded spec, the origin, and the metadata that can affect a proxy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.problem import ObjectRef

S = TypeVar("S")


class ObjectKey(NamedTuple):
    """The key of an object that is read from the local cluster only. `namespace` is "" for cluster-scoped kinds."""

    namespace: str
    name: str


class RegistryKey(NamedTuple):
    """The key of an object that is read from every cluster, such as a Service, Pod or Node.

    `namespace` is "" for cluster-scoped kinds.
    """

    cluster: str
    namespace: str
    name: str

    @property
    def object(self) -> ObjectKey:
        """The key without the cluster. Objects with the same namespace and name in different clusters have the same
        ObjectKey."""
        return ObjectKey(self.namespace, self.name)


class Object(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """A configuration object.

    Metadata that cannot affect a proxy, such as resourceVersion and most annotations, is dropped, so a change to it has
    no effect. `annotations` has only the keys that contain `istio.io`, `kubernetes.io/ingress.class` or
    `openshift.io/sa.scc.`. `created` is an RFC 3339 time in UTC, so that strings sort by time, or "" if unknown.
    `origin` is None for objects that a user wrote.
    """

    kind: GroupKind
    namespace: str
    name: str
    spec: S
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    created: str = ""
    origin: Origin | None = None

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.kind, self.namespace, self.name)


def age(o: Object[Any]) -> tuple[str, str, str]:
    """Return Istio's sort key for competing objects: creation time, then name, then namespace."""
    return o.created, o.name, o.namespace


class EndpointPicker(NamedTuple):
    """An ext_proc server that picks the endpoint for each request.

    If `fails_open` is true and the server does not respond, any endpoint is used.
    """

    host: str
    port: int
    fails_open: bool


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The objects from which an object was derived, and the API that determines its semantics.

    For a Gateway, `services` are the hostnames of Services in `namespace`. The workloads of these Services implement
    the Gateway. If `services` is empty, the selector applies. `account` is the service account of the workloads, or ""
    for any. For a VirtualService, `pickers` are pairs of a route's name and its endpoint picker.
    """

    semantics: Literal["gateway", "ingress"]
    parents: tuple[ObjectRef, ...] = ()
    services: tuple[str, ...] = ()
    namespace: str = ""
    account: str = ""
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()

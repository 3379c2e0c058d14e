"""Configuration objects as tables hold them: the metadata that can affect a proxy, the decoded spec, and the origin."""

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
        """The key without the cluster, which objects with the same name share across clusters."""
        return ObjectKey(self.namespace, self.name)


class Object(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """A configuration object.

    Metadata that cannot affect a proxy, such as resourceVersion and most annotations, is dropped, so that a change of
    it changes nothing. `annotations` has only the keys that contain `istio.io`, `kubernetes.io/ingress.class` or
    `openshift.io/sa.scc.`. `created` is RFC 3339 in UTC, which sorts by time, or "" if unknown. `origin` is None for
    objects that a user wrote.
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
    """Return Istio's sort key for competing objects: oldest first, then by name, then by namespace."""
    return o.created, o.name, o.namespace


class EndpointPicker(NamedTuple):
    """An ext_proc server that picks the endpoint of each request.

    If `fails_open` is true, any endpoint is used while the server does not answer.
    """

    host: str
    port: int
    fails_open: bool


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that an object is derived from, and the API whose semantics apply to it.

    Gateways: `services` are the hostnames of the Services whose workloads, in `namespace`, implement the Gateway; if
    there are none, the selector applies. `account` is the service account of these workloads, or "" for any.
    VirtualServices: `pickers` are the endpoint pickers of named routes.
    """

    semantics: Literal["gateway", "ingress"]
    parents: tuple[ObjectRef, ...] = ()
    services: tuple[str, ...] = ()
    namespace: str = ""
    account: str = ""
    pickers: tuple[tuple[str, EndpointPicker], ...] = ()

"""Configuration objects as tables hold them: the metadata that can affect a proxy, and the decoded spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.origin import Origin
from pilot.config.problem import ObjectRef

S = TypeVar("S")


class ObjectKey(NamedTuple):
    """The key of an object that is read from the local cluster only. `namespace` is "" for cluster-scoped kinds."""

    namespace: str
    name: str


class RegistryKey(NamedTuple):
    """The key of an object that every cluster has its own of, such as a Service, Pod or Node.

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

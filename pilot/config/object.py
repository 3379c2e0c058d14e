"""A configuration object as the tables hold it: the metadata that can matter to a proxy, and the decoded spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.origin import Origin
from pilot.config.problem import ObjectRef

S = TypeVar("S")


class ObjectKey(NamedTuple):
    """Row key of the kinds that are configuration, which the mesh has once. `namespace` is "" for cluster-scoped kinds."""

    namespace: str
    name: str


class RegistryKey(NamedTuple):
    """Row key of the kinds that tell what runs in a cluster, which every cluster has its own of: Service, Pod, Node and the like.

    `namespace` is "" for cluster-scoped kinds.
    """

    cluster: str
    namespace: str
    name: str

    @property
    def object(self) -> ObjectKey:
        """Returns the key without the cluster: what objects of the same name in several clusters have in common."""
        return ObjectKey(self.namespace, self.name)


class Object(msgspec.Struct, Generic[S], frozen=True, gc=False):
    """One object. Metadata that no proxy can notice (resourceVersion, most annotations) is not kept, so that its change is none.

    `labels` are whole; `annotations` only those whose key contains `istio.io` or `kubernetes.io/ingress.class`.
    `created` is RFC 3339 in UTC (it sorts), "" where unknown. `origin` is None for an object that a user wrote.
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
    """Returns the sort key of Istio's rule wherever two objects compete: oldest first, then by name, then by namespace."""
    return o.created, o.name, o.namespace

"""`Kind`: the single declaration of a configuration kind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, NamedTuple, Self, TypeAlias, TypeVar

from google.protobuf import struct_pb2

from pilot.config.group_kind import GATEWAY_API, GroupKind, is_istio
from pilot.config.indexes import namespace_of
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.config.problem import Problem
from pilot.derive import Collection, Database, Index, Table

K = TypeVar("K", ObjectKey, RegistryKey)
S = TypeVar("S")
Source = Callable[[Any], Mapping[Any, Object[Any]]]
_BUILT_IN = frozenset({"", "discovery.k8s.io", "networking.k8s.io"})
"""API groups of built-in kinds."""


class Column(NamedTuple):
    """A column in the output of `kubectl get`."""

    name: str
    path: str
    description: str
    type: str = "string"


AGE = Column("Age", ".metadata.creationTimestamp", "Creation time of the object.", "date")


class CustomResource(NamedTuple):
    """The parts of a kind's CustomResourceDefinition that cannot be derived from its struct.

    `stored_version` is the version that the API server stores, or "" for the preferred one.
    """

    short_name: str = ""
    columns: tuple[Column, ...] = (AGE,)
    requires_spec: bool = False
    stored_version: str = ""


def accept_any(_: Object[Any]) -> Iterable[Problem]:
    """Return no problems."""
    return ()


def keep(spec: S, _: Sequence[str]) -> tuple[S, list[Problem]]:
    """Return the spec unchanged, and no problems."""
    return spec, []


def no_fields(_: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an empty mapping."""
    return {}


class BaseKind(Collection[K, Object[S]], Generic[K, S]):
    """A configuration kind whose objects have a spec of type `S`. It also reads these objects (see `Collection`).

    Use the subclasses `Kind` and `RegistryKind`, which define the key of an object. The objects are those in the kind's
    table and those that the kind's sources derive from other kinds. pilot.mesh.lowering registers the sources.

    Decoding: `versions` are the API versions that are read, the preferred one first. `struct` receives the fields of an
    object's `spec`, the top-level fields that are named in `parts`, and the fields that `extra` returns. `extra` is
    called with the whole object after its metadata has been validated. `validate` returns the problems of a decoded
    object, with paths relative to the object. `tighten` is called before it for objects with unknown fields, with the
    spec without them and their paths in the object. It returns the spec to apply and problems. Kinds whose unknown
    fields may restrict what an object permits require it.

    Storage: the table has an index for each entry of `indexes` and `domain_indexes`, and the index `namespace` if the
    kind is namespaced. The functions in `domain_indexes` take the DNS domain of the mesh and return the index.

    Metrics: `push_reason` is the type in pilot_push_triggers, `update` that in pilot_inbound_updates, and
    `registry_event` that in pilot_k8s_reg_events. Kinds without a `registry_event` are counted in pilot_k8s_cfg_events.

    Protocols: `message` is the protobuf message of a spec in configuration over xDS. `custom_resource` contains the
    parts of the CustomResourceDefinition that cannot be derived.
    """

    per_cluster: ClassVar[bool]

    def __init__(
        self,
        group_kind: GroupKind,
        versions: tuple[str, ...],
        struct: type[S],
        validate: Callable[[Object[S]], Iterable[Problem]] = accept_any,
        *,
        parts: tuple[str, ...] = (),
        extra: Callable[[Mapping[str, Any]], Mapping[str, Any]] = no_fields,
        tighten: Callable[[S, Sequence[str]], tuple[S, list[Problem]]] = keep,
        namespaced: bool = True,
        indexes: Mapping[str, Index] | None = None,
        domain_indexes: Mapping[str, Callable[[str], Index]] | None = None,
        push_reason: str = "config",
        update: Literal["config", "svc", "eds"] = "config",
        registry_event: str = "",
        message: type[Any] = struct_pb2.Struct,
        custom_resource: CustomResource = CustomResource(),
    ) -> None:
        super().__init__(group_kind.name, str(group_kind))
        self.id, self.versions = group_kind, versions
        self.struct, self.validate, self.parts, self.extra = struct, validate, parts, extra
        self.tighten = tighten
        self.namespaced = namespaced
        self.indexes, self.domain_indexes = indexes or {}, domain_indexes or {}
        self.push_reason, self.update, self.registry_event = push_reason, update, registry_event
        self.message, self.custom_resource = message, custom_resource
        self._has_tables = False

    def add_source(self, rows: Source, enabled: Callable[[Any], bool] | None = None) -> None:
        """Add a source that derives objects from other kinds.

        Raise RuntimeError if a database has already been created.
        """
        if self._has_tables:
            raise RuntimeError(f"cannot add a source to {self.id}: a database already exists")
        super().add_source(rows, enabled)

    def create_table(self, db: Database, domain: str) -> Table[K, Object[S]]:
        """Create the kind's table in a database. `domain` is the DNS domain of the mesh."""
        self._has_tables = True
        common = {"namespace": namespace_of} if self.namespaced else {}
        of_domain = {name: make_index(domain) for name, make_index in self.domain_indexes.items()}
        return Table(db, self.table_name, **common, **self.indexes, **of_domain)

    def served_as(self, group: str, version: str) -> Self:
        """Return the same kind, with the same table, in another group and only in one version."""
        served = copy.copy(self)
        served.id, served.versions = GroupKind(group, self.id.name), (version,)
        return served

    def key(self, cluster: str, namespace: str, name: str) -> K:
        """Return the key of an object in a cluster. `namespace` is "" for cluster-scoped kinds."""
        raise NotImplementedError

    @property
    def is_built_in(self) -> bool:
        """True if every API server has the kind. Other kinds require a CustomResourceDefinition."""
        return self.id.group in _BUILT_IN

    @property
    def is_istio(self) -> bool:
        """True if Istio defines the kind."""
        return is_istio(self.id.group)

    @property
    def is_over_xds(self) -> bool:
        """True if configuration sources over xDS may serve the kind."""
        return self.is_istio or self.id.group == GATEWAY_API

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"


class Kind(BaseKind[ObjectKey, S]):
    """A kind that is read from the local cluster only, because it configures the whole mesh."""

    per_cluster = False

    def key(self, cluster: str, namespace: str, name: str) -> ObjectKey:
        """Return the key of an object, which does not depend on the cluster."""
        return ObjectKey(namespace, name)


class RegistryKind(BaseKind[RegistryKey, S]):
    """A kind that is read from every cluster, because it describes the services and workloads of the cluster."""

    per_cluster = True

    def key(self, cluster: str, namespace: str, name: str) -> RegistryKey:
        """Return the key of an object in a cluster."""
        return RegistryKey(cluster, namespace, name)


AnyKind: TypeAlias = "BaseKind[Any, Any]"

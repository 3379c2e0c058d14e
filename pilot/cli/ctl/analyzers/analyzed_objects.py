"""Objects as plain data, as read from files or from an API server."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import ObjectRef, Problem

Plain = Mapping[str, Any]
LineOf = Callable[[str], int]
_CLUSTER_SCOPED = frozenset(
    ("Namespace", "CustomResourceDefinition", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
)


def mapping(value: Any) -> dict[str, Any]:
    """Return a value that should be a mapping, or an empty mapping if it is something else."""
    return value if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the mappings in a value that should be a list of mappings."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def texts(value: Any) -> dict[str, str]:
    """Return the entries of a value that should be a mapping of texts, such as labels."""
    return {str(key): text for key, text in mapping(value).items() if isinstance(text, str)}


class AnalyzedObject:
    """An object.

    `file` and `line_of` are its place in a file. `file` is "" if it is from an API server. `cluster` is the context of
    its API server, or "" for the first one.
    """

    def __init__(self, plain: Plain, file: str = "", line_of: LineOf | None = None, cluster: str = "") -> None:
        self.plain, self.file, self._line_of, self.cluster = plain, file, line_of, cluster
        metadata = mapping(plain.get("metadata"))
        group, _, _ = str(plain.get("apiVersion") or "").rpartition("/")
        self.id = GroupKind(group, str(plain.get("kind") or ""))
        self.name = str(metadata.get("name") or "")
        self.namespace = "" if self.id.name in _CLUSTER_SCOPED else str(metadata.get("namespace") or "default")
        self.labels, self.annotations = texts(metadata.get("labels")), texts(metadata.get("annotations"))

    def part(self, *path: str) -> dict[str, Any]:
        """Return the mapping at a path, or an empty mapping."""
        return mapping(self.value(*path))

    def items(self, *path: str) -> list[dict[str, Any]]:
        """Return the mappings in the list at a path."""
        return mappings(self.value(*path))

    def value(self, *path: str) -> Any:
        """Return the value at a path, or None."""
        value: Any = self.plain
        for field in path:
            value = mapping(value).get(field)
        return value

    def place(self, problem: Problem) -> Problem:
        """Return a problem of this object with the object and the file and line of its path."""
        line = self._line_of(problem.path) if self._line_of is not None else 0
        ref = ObjectRef(self.id, self.namespace, self.name)
        return msgspec.structs.replace(problem, object=ref, file=self.file, line=line)


class AnalyzedObjects:
    """The objects that analyzers compare with each other.

    `is_live` is true if all objects of a cluster are among them, so that what is absent does not exist.
    """

    def __init__(self, objects: Iterable[AnalyzedObject], mesh: MeshConfig, is_live: bool = False) -> None:
        self._by_kind: dict[GroupKind, dict[tuple[str, str, str], AnalyzedObject]] = {}
        self.mesh, self.is_live = mesh, is_live
        for one in objects:
            self._by_kind.setdefault(one.id, {}).setdefault((one.cluster, one.namespace, one.name), one)

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of the objects of the kinds that analyzers read."""
        return {namespace for objects in self._by_kind.values() for _, namespace, _ in objects}

    def count(self, kinds: Iterable[GroupKind]) -> int:
        """Return the number of objects of some kinds."""
        return sum(len(self._by_kind.get(kind, ())) for kind in kinds)

    def of_every_cluster(self, kind: GroupKind) -> Iterable[AnalyzedObject]:
        """Return the objects of a kind, including those of other clusters."""
        return self._by_kind.get(kind, {}).values()

    def of(self, kind: GroupKind) -> Iterator[AnalyzedObject]:
        """Yield the objects of a kind in the first cluster."""
        return (one for one in self.of_every_cluster(kind) if not one.cluster)

    def get(self, kind: GroupKind, namespace: str, name: str) -> AnalyzedObject | None:
        """Return an object of the first cluster, or None if it does not exist."""
        return self._by_kind.get(kind, {}).get(("", namespace, name))

    @functools.cached_property
    def by_namespace(self) -> Callable[[GroupKind, str], list[AnalyzedObject]]:
        """A function that returns the objects of a kind in a namespace of the first cluster."""

        @functools.cache
        def groups(kind: GroupKind) -> dict[str, list[AnalyzedObject]]:
            lists: dict[str, list[AnalyzedObject]] = {}
            for one in self.of(kind):
                lists.setdefault(one.namespace, []).append(one)
            return lists

        return lambda kind, namespace: groups(kind).get(namespace, [])

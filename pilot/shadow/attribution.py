"""Finds the object that a difference follows from.

The candidates are the objects that the resource was built from. Each candidate is removed from the mesh in turn and the
resource is derived again. A candidate explains the difference if the part of the resource that differs changes. Of
these, one that contains a text that the reference lacks is preferred, then one that changes more of the differing
leaves, and then the one that changes least of the resource, because it is the most specific: without a VirtualService
only its routes change, without the Service the whole virtual host disappears.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from pilot.config.group_kind import GroupKind, parse_kind
from pilot.config.kinds.istio import PEER_AUTHENTICATION
from pilot.config.object import ObjectKey, RegistryKey
from pilot.config.problem import ObjectRef
from pilot.config.security.peer_authentication import MutualTLS, MutualTLSMode
from pilot.derive.explanation import Reason, walk
from pilot.mesh.tables.database import MESH_CONFIG
from pilot.shadow.cluster_snapshot import Row, ShadowMesh, default_mesh_row, is_mesh_row
from pilot.shadow.derived_resources import DerivedResource, derive_resources
from pilot.shadow.normal_form import derived_form, leaves_of
from pilot.shadow.reference_proxies import ReferenceProxy
from pilot.shadow.resource_comparison import DifferingResource, LeafDifference, Side

MOST_CANDIDATES = 60
"""Maximum number of objects that are removed for one difference, nearest first."""
SHORTEST_TEXT = 6
_NOT_CONFIGURATION = frozenset({"Proxy", "SecretAccess", "Clock", "AuthorityRoots", "Refusal"})
_MODES: tuple[MutualTLSMode, ...] = ("STRICT", "PERMISSIVE", "DISABLE")
_ABSENT = object()


class Effect(NamedTuple):
    """The effect of removing a candidate.

    `is_other` says whether the object contains none of the texts that the reference lacks. `missed` is the number of
    differing leaves that do not change, and `leaves` the number of leaves that change.

    Of effects with as many leaves, those of Kubernetes' core kinds come last: without its DestinationRule or its
    Service, the cluster of a subset disappears alike.
    """

    is_other: bool
    missed: int
    leaves: int
    is_core: bool
    distance: int
    row: Row


class Attribution:
    """Attributes differences to objects of a mesh."""

    def __init__(self, mesh: ShadowMesh) -> None:
        self._mesh = mesh

    def find(self, one: DifferingResource) -> ObjectRef | None:
        """Return the object that a difference follows from, or None if no single object explains it."""
        text = (one.raw or b"").decode("utf-8", "replace")
        if refused := [row for row in self._mesh.refused if _is_named(row, text)]:
            return _ref(refused[0])
        if one.derived is None:
            return self._of_missing(one.difference.name, text)
        effects = list(self._effects(one, one.proxies[0], one.derived))
        return _ref(min(effects).row) if effects else None

    def _effects(self, one: DifferingResource, proxy: ReferenceProxy, derived: DerivedResource) -> Iterator[Effect]:
        """Yield the effects of the candidates whose removal changes the part that differs."""
        before = leaves_of(derived_form(derived.resource))
        parts = [_nearest_part(leaf.path, before) for leaf in one.difference.leaves]
        paths = {leaf.path for leaf in one.difference.leaves}
        texts = _new_texts(one)
        for distance, row in enumerate(self._candidates(derived)):
            is_core = not parse_kind(row.table).group
            content = repr(self._mesh.row(row)) if texts else ""
            is_other = not any(text in content for text in texts)
            for after in self._variants(proxy, one, row):
                changed = {p for p in before.keys() | after.keys() if before.get(p, _ABSENT) != after.get(p, _ABSENT)}
                if one.difference.side is Side.DERIVED and not after:
                    yield Effect(is_other, 0, len(before), is_core, distance, row)
                elif one.difference.side is Side.BOTH and any(p.startswith(part) for part in parts for p in changed):
                    missed = len(paths - changed)
                    yield Effect(is_other, missed, len(changed), is_core, distance, row)

    def _variants(self, proxy: ReferenceProxy, one: DifferingResource, row: Row) -> Iterator[dict[str, Any]]:
        """Yield the leaves of the resource with each replacement of an object."""
        value = self._mesh.row(row)
        for replacement in _replacements(row, value) if value is not None else ():
            self._mesh.replace(row, replacement)
            try:
                leaves = self._leaves(proxy, one)
            finally:
                self._mesh.replace(row, value)
            yield leaves

    def _candidates(self, derived: DerivedResource) -> Iterable[Row]:
        """Return the rows from which a resource was built, nearest first."""
        db, group = self._mesh.mesh, derived.group
        group.fn(db, *group.args)
        node = db.find_node(group.fn, *group.args)
        if node is None:
            return ()
        current = next((r for r in node.value.values() if r == derived.resource), derived.resource)
        reasons = [step for step in walk(db, node, current) if isinstance(step, Reason)]
        rows = dict.fromkeys(Row(r.table, r.key) for r in reasons if r.table not in _NOT_CONFIGURATION)
        return list(rows)[:MOST_CANDIDATES]

    def _leaves(self, proxy: ReferenceProxy, one: DifferingResource) -> dict[str, Any]:
        """Return the leaves of the resource in the current mesh, or {} if it does not exist."""
        by_name = derive_resources(self._mesh.mesh, proxy).get(one.difference.kind, {})
        name = one.derived.resource.name if one.derived is not None else one.difference.name
        derived = by_name.get(name)
        return leaves_of(derived_form(derived.resource)) if derived is not None else {}

    def _of_missing(self, name: str, text: str) -> ObjectRef | None:
        """Return the object that a resource of the reference alone names, in its metadata or in its own name."""
        rows = [row for row in self._named_rows if _is_named(row, text)]
        rows = rows or [row for row in self._named_rows if _is_part(row, name)]
        return _ref(max(rows, key=lambda row: len(getattr(row.key, "name", "")))) if rows else None

    @functools.cached_property
    def _named_rows(self) -> list[Row]:
        tables = {kind.table_name: kind.table(self._mesh.mesh) for kind in self._mesh.mesh.catalogue}
        return [Row(name, key) for name, table in tables.items() for key, _ in table.rows()]


def _replacements(row: Row, value: Any) -> Iterator[Any]:
    """Yield what an object is replaced with, to see what follows from it. None removes it.

    Without a PeerAuthentication, another one may apply that has the same mode.
    """
    yield default_mesh_row(row) if is_mesh_row(row) else None
    if row.table == PEER_AUTHENTICATION.table_name:
        for mode in _MODES:
            spec = msgspec.structs.replace(value.spec, mtls=MutualTLS(mode=mode))
            yield msgspec.structs.replace(value, spec=spec)


def _new_texts(one: DifferingResource) -> set[str]:
    """Return the texts in differing leaves that the reference lacks. Short ones occur in many objects."""
    leaves = one.difference.leaves
    texts = {leaf.derived for leaf in leaves if isinstance(leaf.derived, str)}
    return {text for text in texts - {str(leaf.reference) for leaf in leaves} if len(text) >= SHORTEST_TEXT}


def _nearest_part(path: str, leaves: dict[str, Any]) -> str:
    """Return the longest prefix of a path that is a leaf, or a part with leaves, of the resource."""
    part = path
    while part and not any(leaf == part or leaf.startswith((f"{part}.", f"{part}[")) for leaf in leaves):
        part = part[: max(part.rfind("."), part.rfind("["), 0)]
    return part


def _is_named(row: Row, text: str) -> bool:
    """Return whether a resource names an object by name and namespace, as in its metadata or in a host name."""
    key = row.key
    if not isinstance(key, ObjectKey | RegistryKey) or not key.namespace:
        return False
    kind = parse_kind(row.table).name
    hyphenated = "".join(f"-{c.lower()}" if c.isupper() else c for c in kind).lstrip("-")
    return f"/namespaces/{key.namespace}/{hyphenated}/{key.name}" in text or (
        kind == "Service" and f"{key.name}.{key.namespace}.svc" in text
    )


def _is_part(row: Row, name: str) -> bool:
    """Return whether the name of a resource contains the name and the namespace of an object."""
    key = row.key
    is_object = isinstance(key, ObjectKey | RegistryKey) and bool(key.namespace)
    return is_object and key.namespace in name and key.name in name  # type: ignore[attr-defined]


def _ref(row: Row) -> ObjectRef:
    """Return the reference to an object. The mesh config and the mesh networks are objects of those kinds."""
    if row.table == MESH_CONFIG:
        return ObjectRef(GroupKind("", "MeshConfig" if row.key == "mesh" else "MeshNetworks"), "", str(row.key))
    kind, key = parse_kind(row.table), row.key
    if isinstance(key, ObjectKey | RegistryKey):
        return ObjectRef(kind, key.namespace, key.name)
    return ObjectRef(kind, "", str(key))


def example_leaf(one: DifferingResource) -> LeafDifference:
    """Return the leaf that stands for a difference: the first one with a value on both sides, if there is one."""
    leaves = one.difference.leaves
    return next((leaf for leaf in leaves if leaf.reference is not None and leaf.derived is not None), leaves[0])

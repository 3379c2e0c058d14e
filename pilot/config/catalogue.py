"""The catalogue of all kinds that the control plane reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import ModuleType

from pilot.config.group_kind import EXPERIMENTAL_GATEWAY_API, GATEWAY_API, INFERENCE, GroupKind, is_istio
from pilot.config.kind import AnyKind, BaseKind
from pilot.config.kinds import gateway_api, istio, kubernetes

_SHORT_NAMES = {
    GroupKind("", "Service"): "svc",
    GroupKind("", "Pod"): "po",
    GroupKind("", "Namespace"): "ns",
    GroupKind("", "Node"): "no",
    GroupKind("", "ConfigMap"): "cm",
    GroupKind("networking.k8s.io", "Ingress"): "ing",
    GroupKind(GATEWAY_API, "Gateway"): "gtw",
    GroupKind(GATEWAY_API, "GatewayClass"): "gc",
}
"""The short names of kinds whose definitions are not part of this project."""


class Catalogue:
    """Kinds, indexed by GroupKind and by table name."""

    def __init__(self, kinds: Iterable[AnyKind]) -> None:
        self._kinds = {kind.id: kind for kind in kinds}
        self._by_table = {kind.table_name: kind for kind in self}
        first: dict[str, GroupKind] = {}
        for kind in self:
            first.setdefault(kind.id.name, kind.id)
        self._short_names = frozenset(first.values())

    def find(self, group_kind: GroupKind) -> AnyKind | None:
        """Return the kind with this group and name, or None if it is not in the catalogue."""
        return self._kinds.get(group_kind)

    def named(self, text: str) -> list[AnyKind]:
        """Return the kinds with a name, such as VirtualService, virtualservices, vs or gateway.networking.istio.io."""
        name, _, group = text.lower().partition(".")
        return [kind for kind in self if name in _names(kind) and group in ("", kind.id.group)]

    def find_by_table(self, table_name: str) -> AnyKind | None:
        """Return the kind that is stored in a table.

        Return None if the table stores something else, as the table of the mesh config does.
        """
        return self._by_table.get(table_name)

    def short_name(self, group_kind: GroupKind) -> str:
        """Return the name that identifies a kind in metric labels.

        It is the name of the kind, as in istiod, or "group/name" if an earlier kind has the same name.
        """
        is_short = group_kind in self._short_names or group_kind not in self._kinds
        return group_kind.name if is_short else str(group_kind)

    def in_group(self, group: str, served_group: str, version: str) -> Catalogue:
        """Return a catalogue in which the kinds of a group are read from another group and in another version.

        Their tables stay the same, so readers of the objects do not depend on the group.
        """
        if group == served_group and all(version in kind.versions for kind in self if kind.id.group == group):
            return self
        return Catalogue(kind.served_as(served_group, version) if kind.id.group == group else kind for kind in self)

    def __iter__(self) -> Iterator[AnyKind]:
        return iter(self._kinds.values())


def _names(kind: AnyKind) -> tuple[str, ...]:
    """Return the names by which users may select a kind, as with kubectl."""
    name = kind.id.name.lower()
    short = kind.custom_resource.short_name or _SHORT_NAMES.get(kind.id, "")
    return name, f"{name}s", f"{name}es", f"{name.removesuffix('y')}ies", *((short,) if short else ())


def kinds_in(module: ModuleType) -> Iterator[AnyKind]:
    """Yield the kinds that a module declares, in declaration order."""
    return (value for value in vars(module).values() if isinstance(value, BaseKind))


CATALOGUE = Catalogue(kind for module in (kubernetes, istio, gateway_api) for kind in kinds_in(module))


def is_mesh_group(group: str) -> bool:
    """Return whether users expect a mesh to support every kind in an API group. Unknown kinds in such a group are
    reported."""
    return is_istio(group) or group in (
        GATEWAY_API,
        EXPERIMENTAL_GATEWAY_API,
        INFERENCE,
        "networking.k8s.io",
        "discovery.k8s.io",
    )

"""Which kinds are read from an API server, and which of their objects."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator

from pilot.config.group_kind import GroupKind, plural_of
from pilot.config.kind import AnyKind
from pilot.kube.informer import WatchedCollection

_BUILT_IN = frozenset({"", "discovery.k8s.io", "networking.k8s.io"})
"""Groups that every server has; the kinds of others are there when their CustomResourceDefinition is."""
_FIELDS = {
    GroupKind("", "Pod"): "status.phase!=Failed",
    GroupKind("", "Secret"): "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token",
    GroupKind(
        "", "ConfigMap"
    ): "metadata.name!=kube-root-ca.crt,metadata.name!=istio-ca-root-cert,metadata.name!=istio-ca-crl",
}
"""What is left out: it is large or in every namespace, and no proxy can be given it."""
DEFINITIONS = WatchedCollection("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", metadata_only=True)


def is_built_in(kind: AnyKind) -> bool:
    """Returns whether every API server has a kind."""
    return kind.id.group in _BUILT_IN


def definition_of(kind: AnyKind) -> str:
    """Returns the name of the CustomResourceDefinition of a kind."""
    return f"{plural_of(kind.id)}.{kind.id.group}"


def collection_of(kind: AnyKind, version: str, namespace: str = "") -> WatchedCollection:
    """Returns what is followed of a kind in a version: in one namespace, where one is named and objects of the kind lie in any."""
    base = f"/apis/{kind.id.group}/{version}" if kind.id.group else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return WatchedCollection(f"{base}{within}/{plural_of(kind.id)}", fields=_FIELDS.get(kind.id, ""))


def read_kinds(kinds: Iterable[AnyKind], ignored: Names[str], included: Names[str]) -> Iterator[AnyKind]:
    """Yields the kinds that are read: all but those ignored; of these those included are read nevertheless.

    Both name them `plural.group`, or `*.group` for all of a group. Built-in kinds are always read.
    """
    for kind in kinds:
        names = {definition_of(kind), f"*.{kind.id.group}"}
        if is_built_in(kind) or names.isdisjoint(ignored) or not names.isdisjoint(included):
            yield kind

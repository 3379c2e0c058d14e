"""Selects the kinds and objects to read from an API server."""

from __future__ import annotations

from collections.abc import Collection as Names
from collections.abc import Iterable, Iterator

from pilot.config.group_kind import GroupKind, plural_of
from pilot.config.kind import AnyKind
from pilot.kube.informer import WatchedCollection

_FIELDS = {
    GroupKind("", "Pod"): "status.phase!=Failed",
    GroupKind("", "Secret"): "type!=helm.sh/release.v1,type!=kubernetes.io/service-account-token",
    GroupKind(
        "", "ConfigMap"
    ): "metadata.name!=kube-root-ca.crt,metadata.name!=istio-ca-root-cert,metadata.name!=istio-ca-crl",
}
"""Field selectors, keyed by kind. They exclude objects that no proxy can use, if these are large or exist in every
namespace."""
DEFINITIONS = WatchedCollection("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", metadata_only=True)


def definition_of(kind: AnyKind) -> str:
    """Return the name of the CustomResourceDefinition of a kind."""
    return f"{plural_of(kind.id)}.{kind.id.group}"


def collection_of(kind: AnyKind, version: str, namespace: str = "") -> WatchedCollection:
    """Return the collection to watch for a version of a kind. If the kind is namespaced, the collection is limited to
    `namespace`."""
    base = f"/apis/{kind.id.group}/{version}" if kind.id.group else f"/api/{version}"
    within = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return WatchedCollection(f"{base}{within}/{plural_of(kind.id)}", fields=_FIELDS.get(kind.id, ""))


def read_kinds(kinds: Iterable[AnyKind], ignored: Names[str], included: Names[str]) -> Iterator[AnyKind]:
    """Yield the kinds to read. A kind is excluded if it is in `ignored` but not in `included`.

    Both contain names of the form `plural.group`, or `*.group` for all kinds of a group. Built-in kinds are always
    read.
    """
    for kind in kinds:
        names = {definition_of(kind), f"*.{kind.id.group}"}
        if kind.is_built_in or names.isdisjoint(ignored) or not names.isdisjoint(included):
            yield kind

"""CustomResourceDefinitions of the kinds of the catalogue, without schemas."""

from __future__ import annotations

from typing import Any

from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind
from pilot.ingest.cluster.watched_kinds import definition_of

_APPROVED = {"api-approved.kubernetes.io": "unapproved, for tests"}
"""Annotation that an API server requires on definitions in Kubernetes' own groups."""


def definition(kind: AnyKind, *versions: str) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind, with all versions that are read or with the given ones."""
    anything = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    served_versions = [
        {"name": v, "served": True, "storage": not i, "schema": anything, "subresources": {"status": {}}}
        for i, v in enumerate(versions or kind.versions)
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": definition_of(kind), "annotations": _APPROVED if kind.id.group.endswith("k8s.io") else {}},
        "spec": {
            "group": kind.id.group,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "plural": plural_of(kind.id),
                "singular": kind.id.name.lower(),
                "kind": kind.id.name,
                "listKind": f"{kind.id.name}List",
            },
            "versions": served_versions,
        },
    }


def definitions(catalogue: Catalogue = CATALOGUE) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds that are not built in."""
    return [definition(kind) for kind in catalogue if not kind.is_built_in]

"""CustomResourceDefinitions for Istio's kinds."""

from __future__ import annotations

from typing import Any

from deploy.crd.schema import OPEN, schema_of
from pilot.config.catalogue import CATALOGUE, Catalogue
from pilot.config.group_kind import plural_of
from pilot.config.kind import AnyKind

Plain = dict[str, Any]


def definitions(catalogue: Catalogue = CATALOGUE) -> list[Plain]:
    """Return the definitions of all Istio kinds, sorted by name."""
    plain = (definition(kind) for kind in catalogue if kind.is_istio)
    return sorted(plain, key=lambda each: str(each["metadata"]["name"]))


def definition(kind: AnyKind) -> Plain:
    """Return the CustomResourceDefinition of a kind."""
    name, group = kind.id.name, kind.id.group
    names: Plain = {
        "categories": ["istio-io", group.replace(".", "-").removesuffix("-istio-io") + "-istio-io"],
        "kind": name,
        "listKind": f"{name}List",
        "plural": plural_of(kind.id),
        "singular": name.lower(),
    }
    if kind.custom_resource.short_name:
        names["shortNames"] = [kind.custom_resource.short_name]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}", "annotations": {"helm.sh/resource-policy": "keep"}},
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": _versions(kind),
        },
    }


def _versions(kind: AnyKind) -> list[Plain]:
    """Return the versions of a kind, sorted by name. They share one schema, because objects are the same in all of
    them."""
    facts = kind.custom_resource
    stored = facts.stored_version or kind.versions[0]
    schema: Plain = {
        "type": "object",
        "properties": {"spec": schema_of(kind.struct, without=kind.parts), "status": OPEN},
    }
    if facts.requires_spec:
        schema["required"] = ["spec"]
    columns = [
        {"name": column.name, "type": column.type, "jsonPath": column.path, "description": column.description}
        for column in facts.columns
    ]
    return [
        {
            "name": version,
            "served": True,
            "storage": version == stored,
            "subresources": {"status": {}},
            "additionalPrinterColumns": columns,
            "schema": {"openAPIV3Schema": schema},
        }
        for version in sorted(kind.versions)
    ]

"""Decodes mesh config and mesh networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import DEFAULT_PROVIDERS, MeshConfig
from pilot.config.mesh.mesh_networks import MeshNetworks
from pilot.config.problem import LONGEST_FIELD, ObjectRef, Problem, error, has_errors
from pilot.config.validation.mesh import validate_mesh_config, validate_mesh_networks
from pilot.ingest import shape
from pilot.lib.text import cut

T = TypeVar("T")
MESH = ObjectRef(GroupKind("", "MeshConfig"), "", "mesh")
NETWORKS = ObjectRef(GroupKind("", "MeshNetworks"), "", "networks")
WRONG_DOCUMENT = "wrong-document"
"""The code of the problem that a file is another object than the mesh config."""
_BUILT_IN = msgspec.to_builtins(DEFAULT_PROVIDERS)


def decode_mesh_config(layers: Sequence[Any]) -> tuple[MeshConfig | None, list[Problem]]:
    """Return the mesh config that results from merging layers, and the problems in it.

    The result is None if there is an error. Layers are ordered from the lowest to the highest, above the built-in
    defaults. A field replaces the same field of a lower layer, with these exceptions. `defaultConfig`, its
    `proxyMetadata` and `proxyHeaders`, and `defaultProviders` are merged field by field. `extensionProviders` are
    merged by name, and `trustDomainAliases` are the union of all layers.

    https://istio.io/latest/docs/reference/config/istio.mesh.v1alpha1/
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        if hint := _wrapper(layer):
            return None, _about(MESH, [error(WRONG_DOCUMENT, "kind" if "kind" in layer else "mesh", hint)])
        plain, problems = shape.checked({} if layer is None else layer, MeshConfig)
        if problems:
            return None, _about(MESH, problems)
        merged = _over(merged, plain)
    merged["extensionProviders"] = _by_name(_BUILT_IN, merged.get("extensionProviders", ()))
    mesh, problems = shape.decode(merged, MeshConfig)
    return _unless_invalid(mesh, _about(MESH, problems or validate_mesh_config(mesh)))


def _wrapper(layer: Any) -> str:
    """Return how to use a document that only contains a mesh config, or "" if it is none."""
    if not isinstance(layer, dict):
        return ""
    if layer.get("kind") == "ConfigMap":
        return "this is a ConfigMap, not a mesh config: use the content of its key mesh"
    if layer.get("kind") == "IstioOperator":
        return "this is an IstioOperator, not a mesh config: use the content of its spec.meshConfig"
    if isinstance(kind := layer.get("kind"), str) and "apiVersion" in layer:
        return (
            f"this is a {cut(kind, LONGEST_FIELD)}, not a mesh config, whose fields are at the top level, such as "
            "trustDomain: cluster.local; put objects into the folder of --configDir"
        )
    return "this is not a mesh config: use the content of the key mesh" if layer.keys() == {"mesh"} else ""


def decode_mesh_networks(plain: Any) -> tuple[MeshNetworks | None, list[Problem]]:
    """Return the mesh networks and their problems. The mesh networks are None if there is an error."""
    plain, problems = shape.checked({} if plain is None else plain, MeshNetworks)
    if problems:
        return None, _about(NETWORKS, problems)
    networks, problems = shape.decode(plain, MeshNetworks)
    return _unless_invalid(networks, _about(NETWORKS, problems or validate_mesh_networks(networks)))


def _unless_invalid(value: T, problems: list[Problem]) -> tuple[T | None, list[Problem]]:
    return None if has_errors(problems) else value, problems


def _over(lower: Mapping[str, Any], upper: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**lower, **upper}
    for field, inner in (("defaultConfig", ("proxyMetadata", "proxyHeaders")), ("defaultProviders", ())):
        if field in lower and field in upper:
            merged[field] = {**lower[field], **upper[field]}
            for part in inner:
                if part in lower[field] and part in upper[field]:
                    merged[field][part] = {**lower[field][part], **upper[field][part]}
    merged["extensionProviders"] = _by_name(lower.get("extensionProviders", ()), upper.get("extensionProviders", ()))
    merged["trustDomainAliases"] = sorted({*lower.get("trustDomainAliases", ()), *upper.get("trustDomainAliases", ())})
    return merged


def _by_name(lower: Iterable[dict[str, Any]], upper: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge providers by name. A provider in `upper` replaces the provider with the same name in `lower`."""
    providers = {provider.get("name", ""): provider for provider in lower}
    providers.update((provider.get("name", ""), provider) for provider in upper)
    return list(providers.values())


def _about(subject: ObjectRef, problems: Iterable[Problem]) -> list[Problem]:
    return [msgspec.structs.replace(p, object=subject) for p in problems]

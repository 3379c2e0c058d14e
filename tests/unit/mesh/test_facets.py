"""Arguments of derivations are called keys and facets."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pilot.envoy
import pilot.mesh
from pilot.derive.derived import Derived

# Names of kinds, objects and services, and values of the configuration. No proxy differs by them.
NO_FACETS = {
    "GroupKind",
    "ServiceRef",
    "ObjectRef",
    "SidecarPort",
    "ServerTLSSettings",
    "RouteDestination",
    "ServiceTarget",
    "NodeType",
    "ProxyPatchContext",
    "RoutePiece",
}


def modules() -> Iterator[object]:
    for package in (pilot.mesh, pilot.envoy):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def derivations() -> dict[str, Derived[..., object]]:
    return {f"{m.__name__}.{n}": v for m in modules() for n, v in vars(m).items() if isinstance(v, Derived)}  # type: ignore[attr-defined]


def arguments(of: Derived[..., object]) -> set[str]:
    """The names of our types in the annotations of a derivation, but for those of its result."""
    _, *rest = inspect.signature(of.compute).parameters.values()
    names = {n.id for p in rest for n in ast.walk(ast.parse(str(p.annotation), mode="eval")) if isinstance(n, ast.Name)}
    return {
        name for name in names if name not in {"str", "int", "bool", "tuple", "frozenset", "None", "Labels", "Literal"}
    }


def test_arguments_of_derivations_are_keys_and_facets() -> None:
    found = {(name, a) for name, of in derivations().items() for a in arguments(of)}
    assert len(found) > 100
    assert {(name, a) for name, a in found if not a.endswith(("Key", "Facet")) and a not in NO_FACETS} == set()

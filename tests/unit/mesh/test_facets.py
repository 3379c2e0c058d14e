"""Cache keys and facets are called so, and are all found from `mesh/model/facets.py`."""

from __future__ import annotations

import ast
import importlib
import inspect
import pathlib
import pkgutil
from collections.abc import Iterator

import pilot.envoy
import pilot.mesh
from pilot.derive.derived import Derived
from pilot.mesh.model import facets

# Names of objects and services, and values of the configuration or of views, which no proxy's facet is cut into.
NO_FACETS = {
    "ServiceRef",
    "ObjectRef",
    "SidecarPort",
    "ServerTLSSettings",
    "RouteDestination",
    "ServiceTarget",
    "NodeType",
    "PatchContext",
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


def test_every_key_and_facet_is_found_from_the_facets() -> None:
    trees = (ast.parse(path.read_text()) for path in pathlib.Path("pilot").rglob("*.py"))
    found = {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    named = {name for name in found if name.endswith(("Key", "Facet")) and not name.startswith("_")}
    assert len(named) > 30
    assert {name for name in named if f"`{name}`" not in (facets.__doc__ or "") and not hasattr(facets, name)} == set()

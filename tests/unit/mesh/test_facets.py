"""Argument types of derivations are named Key or Facet."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pilot.envoy
import pilot.mesh
from pilot.derive.derived import Derived

# Kinds, references and configuration values, which are not specific to a proxy.
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
    "RoutePart",
    "PortsOfPod",
}


def modules() -> Iterator[object]:
    for package in (pilot.mesh, pilot.envoy):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(module.name)


def derivations() -> dict[str, Derived[..., object]]:
    return {f"{m.__name__}.{n}": v for m in modules() for n, v in vars(m).items() if isinstance(v, Derived)}  # type: ignore[attr-defined]


def arguments(derivation: Derived[..., object]) -> set[str]:
    """Return the product types in a derivation's parameter annotations. Its previous value is no argument."""
    _, *parameters = inspect.signature(derivation.compute).parameters.values()
    rest = [p for p in parameters if p.name != "previous"]
    names = {n.id for p in rest for n in ast.walk(ast.parse(str(p.annotation), mode="eval")) if isinstance(n, ast.Name)}
    return {
        name for name in names if name not in {"str", "int", "bool", "tuple", "frozenset", "None", "Labels", "Literal"}
    }


def test_arguments_of_derivations_are_keys_and_facets() -> None:
    pairs = {(name, a) for name, derivation in derivations().items() for a in arguments(derivation)}
    assert len(pairs) > 100
    assert {(name, a) for name, a in pairs if not a.endswith(("Key", "Facet")) and a not in NO_FACETS} == set()

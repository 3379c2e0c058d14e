"""Public class names of the product are unique, except for names shared with an API."""

from __future__ import annotations

import ast
import pathlib
from collections import defaultdict

ROOT = pathlib.Path(__file__).resolve().parents[3]
PRODUCT = ("pilot", "ca", "webhook", "gotemplate", "deploy")
API = "pilot/config/"
SHARED = {
    "GatewayStatus": "of a Gateway as it is read, beside the status that is written",
    "Metrics": "of a Telemetry, beside those of the process",
    "Node": "of Kubernetes, beside that of the derivation graph",
    "Port": "of a Gateway, beside that of a service of the model",
    "Service": "of Kubernetes, beside that of the model",
    "Settings": "of MeshConfig's serviceSettings, beside those of the process",
}
"""API names also used by a class of the product."""


def _classes() -> dict[str, list[str]]:
    paths = defaultdict[str, list[str]](list)
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        paths[node.name].append(str(path.relative_to(ROOT)))
    return paths


def test_class_names_are_unique() -> None:
    duplicates = set[str]()
    for name, paths in _classes().items():
        product_paths = [path for path in paths if not path.startswith(API)]
        assert len(product_paths) < 2, f"{name}: {product_paths}"
        if product_paths and len(paths) > 1:
            duplicates.add(name)
    assert duplicates == SHARED.keys()

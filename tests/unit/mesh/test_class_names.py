"""One name, one meaning: public classes of the product are named apart, but for those that APIs name alike."""

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
"""Names of an API that are ours too, because readers know both by them."""


def _classes() -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for top in PRODUCT:
        for path in sorted((ROOT / top).rglob("*.py")):
            if not path.name.endswith("_pb2.py"):
                for node in ast.parse(path.read_text()).body:
                    if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                        found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_a_class_name_stands_for_one_thing() -> None:
    twice = set[str]()
    for name, paths in _classes().items():
        own = [path for path in paths if not path.startswith(API)]
        assert len(own) < 2, f"{name}: {own}"
        if own and len(paths) > 1:
            twice.add(name)
    assert twice == SHARED.keys()

"""Lines of objects and fields in files."""

from __future__ import annotations

import json
import pathlib

import pytest

from pilot.config.group_kind import NETWORKING, GroupKind
from pilot.config.problem import ObjectRef
from pilot.ingest.files.field_lines import find_lines

ROUTE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata:
  name: {name}
  {namespace}
spec:
  hosts: [web]
  http:
  - route:
    - destination: {{host: web}}
"""
FILE = "\n---\n".join(
    (
        ROUTE.format(name="web", namespace="namespace: shop"),
        ROUTE.format(name="web", namespace="labels: {name: other}"),
        ROUTE.format(name="'other'", namespace="namespace: shop"),
    )
)
HOST = "spec.http[0].route[0].destination.host"


def route(namespace: str, name: str) -> ObjectRef:
    return ObjectRef(GroupKind(NETWORKING, "VirtualService"), namespace, name)


def test_fields_are_found_in_the_document_of_their_object(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    web, default, other, gone = route("shop", "web"), route("default", "web"), route("shop", "other"), route("x", "web")
    assert find_lines(str(path), [(web, ""), (web, HOST), (default, HOST), (other, ""), (gone, "")]) == {
        (web, ""): 4,
        (web, HOST): 10,
        (default, HOST): 22,
        (other, ""): 28,
    }


def test_missing_field_has_the_line_of_its_parent(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(FILE)
    field = route("shop", "web"), "spec.http[0].match[3].uri"
    assert find_lines(str(path), [field]) == {field: 9}


@pytest.mark.parametrize("kind", ["List", "VirtualServiceList"])
def test_items_of_lists_are_found(tmp_path: pathlib.Path, kind: str) -> None:
    item = {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"hosts": ["web"]}}
    if kind == "List":
        item |= {"apiVersion": f"{NETWORKING}/v1", "kind": "VirtualService"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"apiVersion": f"{NETWORKING}/v1", "kind": kind, "items": [{}, item]}, indent=1))
    lines = path.read_text().splitlines()
    field = route("shop", "web"), "spec.hosts"
    assert find_lines(str(path), [field]) == {field: next(n for n, line in enumerate(lines, 1) if '"hosts"' in line)}


@pytest.mark.parametrize("text", ["", "web: [", "- web", "kind: web\nmetadata: web"])
def test_unusable_file_has_no_lines(tmp_path: pathlib.Path, text: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    assert find_lines(str(path), [(route("shop", "web"), "")]) == {}
    assert find_lines(str(tmp_path / "none.yaml"), [(route("shop", "web"), "")]) == {}

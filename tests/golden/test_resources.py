"""Golden cases: folders with the objects and proxies of a mesh, and all resources that each proxy receives.

`expected` has a folder for each proxy and a file for each type of resource. Resources that several proxies receive are in a
folder named after all of them, or in `all`. `pytest tests/golden --rewrite` writes the files, and deletes those without a proxy.
"""

from __future__ import annotations

import difflib
import functools
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from google.protobuf import any_pb2, json_format

from testing.mesh.second_decoder import check_same_content
from testing.mesh.world import World, proxy, read_optional
from tests.golden.yaml_text import load_yaml, to_yaml

CASES = sorted(path.parent for path in pathlib.Path(__file__).parent.glob("cases/*/objects.yaml"))


Resources = dict[str, dict[str, dict[str, bytes]]]
"""Serialized Any messages by proxy, type URL and name."""


def connect(case: pathlib.Path) -> tuple[World, list[str]]:
    """Return the mesh of a case, and the node ids of its proxies."""
    world = World(read_optional(case / "mesh.yaml"), environ=yaml.safe_load(read_optional(case / "env.yaml")))
    world.apply(read_optional(case / "objects.yaml"))
    proxies = yaml.safe_load(read_optional(case / "proxies.yaml"))
    return world, [world.connect(proxy(kind=spec.pop("type"), **spec)) for spec in proxies]


@functools.cache
def build(case: pathlib.Path) -> Resources:
    """Return all resources of all proxies of a case."""
    world, node_ids = connect(case)
    resources = {
        node_id.split("~")[2]: {
            url: {name: resource.any for name, resource in rows.items()}
            for url, rows in world.resources(node_id).items()
        }
        for node_id in node_ids
    }
    assert not world.failures
    return resources


def expected_files(resources: Resources) -> dict[str, str]:
    """Return the texts of the files by their paths: PROXIES/TYPE.yaml."""
    proxies_of: dict[tuple[str, str, bytes], list[str]] = {}
    for proxy_name in sorted(resources):
        for url, rows in resources[proxy_name].items():
            for name, packed in rows.items():
                proxies_of.setdefault((url, name, packed), []).append(proxy_name)
    files: dict[str, dict[str, Any]] = {}
    for (url, name, packed), proxies in proxies_of.items():
        folder = "all" if 1 < len(proxies) == len(resources) else "+".join(proxies)
        plain = json_format.MessageToDict(any_pb2.Any.FromString(packed))
        files.setdefault(f"{folder}/{url.rpartition('.')[2]}.yaml", {})[name] = plain
    return {path: to_yaml(content) for path, content in files.items()}


def rewrite(folder: pathlib.Path, texts: Mapping[str, str]) -> None:
    """Write the files of a case, and delete all others."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir() and not any(path.iterdir()):
            path.rmdir()
        elif path.is_file() and str(path.relative_to(folder)) not in texts:
            path.unlink()
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_resources_equal_the_golden_files(case: pathlib.Path, pytestconfig: pytest.Config) -> None:
    folder, texts = case / "expected", expected_files(build(case))
    if pytestconfig.getoption("rewrite"):
        rewrite(folder, texts)
    recorded = {str(path.relative_to(folder)): path.read_text("utf-8") for path in folder.rglob("*") if path.is_file()}
    lines = [
        line
        for name in sorted(recorded.keys() | texts.keys())
        for line in difflib.unified_diff(
            recorded.get(name, "").splitlines(),
            texts.get(name, "").splitlines(),
            f"recorded/{name}",
            name,
            n=4,
            lineterm="",
        )
    ]
    assert not lines, "\n".join(["resources differ from the recorded ones; --rewrite records them:", *lines[:200]])


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_golden_files_are_read_back_as_the_resources(case: pathlib.Path) -> None:
    """Parse the files of each proxy with a YAML parser and compare them with its resources."""
    files = {path: load_yaml(path.read_text("utf-8")) for path in (case / "expected").rglob("*.yaml")}
    for proxy_name, types in build(case).items():
        recorded: dict[str, dict[str, Any]] = {}
        for path, content in files.items():
            if path.parent.name == "all" or proxy_name in path.parent.name.split("+"):
                assert not recorded.get(path.stem, {}).keys() & content.keys(), path
                recorded.setdefault(path.stem, {}).update(content)
        actual = {
            url.rpartition(".")[2]: {n: _as_json(packed) for n, packed in rows.items()} for url, rows in types.items()
        }
        assert recorded == {type_name: rows for type_name, rows in actual.items() if rows}


def _as_json(packed: bytes) -> Any:
    return json.loads(json_format.MessageToJson(any_pb2.Any.FromString(packed)))


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_second_decoder_reads_the_same(case: pathlib.Path) -> None:
    messages = {packed for types in build(case).values() for rows in types.values() for packed in rows.values()}
    assert sum(map(check_same_content, messages)) > 20

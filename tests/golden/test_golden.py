"""Golden pairs: a folder of objects and proxies in, every resource of every proxy out.

`pytest tests/golden --rewrite` writes them again and deletes those that no proxy has any more.
"""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pytest
import yaml
from google.protobuf import any_pb2, json_format

from tests.support.independent import check_same_content
from tests.support.world import World, proxy, read

CASES = sorted(path.parent for path in pathlib.Path(__file__).parent.glob("cases/*/objects.yaml"))


def connect(case: pathlib.Path) -> tuple[World, list[str]]:
    """Returns the mesh of a case, and the node ids of its proxies."""
    world = World(read(case / "mesh.yaml"), environ=yaml.safe_load(read(case / "env.yaml")))
    world.apply(read(case / "objects.yaml"))
    proxies = yaml.safe_load(read(case / "proxies.yaml"))
    return world, [world.connect(proxy(kind=spec.pop("type"), **spec)) for spec in proxies]


def build(case: pathlib.Path) -> tuple[dict[str, dict[str, dict[str, bytes]]], list[str]]:
    """{proxy: {type URL: {name: serialized Any}}}, and what failed on the way."""
    world, node_ids = connect(case)
    found = {}
    for node_id in node_ids:
        resources = world.resources(node_id)
        found[node_id.split("~")[2]] = {
            url: {name: r.any for name, r in sorted(have.items())} for url, have in sorted(resources.items())
        }
    return found, world.failures


def plain(any_bytes: bytes) -> Any:
    return json_format.MessageToDict(any_pb2.Any.FromString(any_bytes))


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_resources_are_as_recorded(case: pathlib.Path, pytestconfig: pytest.Config) -> None:
    built, failures = build(case)
    assert not failures
    texts = {}
    for name, types in built.items():
        content = {url.rpartition(".")[2]: {n: plain(b) for n, b in have.items()} for url, have in types.items()}
        texts[case / "expected" / f"{name}.json"] = json.dumps(content, indent=1, sort_keys=True) + "\n"
    if pytestconfig.getoption("rewrite"):
        (case / "expected").mkdir(exist_ok=True)
        for path, text in texts.items():
            path.write_text(text)
        for path in set((case / "expected").iterdir()) - texts.keys():
            path.unlink()
    assert set((case / "expected").iterdir()) == texts.keys()
    for path, text in texts.items():
        assert json.loads(path.read_text()) == json.loads(text), path.name


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_another_decoder_reads_the_same(case: pathlib.Path) -> None:
    built, _ = build(case)
    compared = sum(check_same_content(b) for types in built.values() for have in types.values() for b in have.values())
    assert compared > 20

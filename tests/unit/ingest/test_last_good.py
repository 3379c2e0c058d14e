"""The last good objects of files that are wrong now, over restarts."""

from __future__ import annotations

import os
import pathlib
import random as randomness
from typing import Any

import msgspec
import pytest
from msgspec import inspect as mi

from pilot.config.catalogue import CATALOGUE
from pilot.config.kind import AnyKind
from pilot.config.object import Object, ObjectKey, RegistryKey
from pilot.ingest import shape
from pilot.ingest.last_good import LastGood
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import Files, service
from tests.property.test_shape import fitting

RULE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop, labels: {a: b}, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {hosts: [a], http: [{route: [{destination: {host: a}}], timeout: 1.5s, retries: {attempts: 2, perTryTimeout: 20ms}}]}
"""


def tables(mesh: Mesh) -> dict[str, dict[Any, Any]]:
    return {name: dict(table.rows()) for name, table in mesh.tables.items()}


class Restarting:
    """A folder of files, a state folder, and control planes one after another."""

    def __init__(self, parent: pathlib.Path) -> None:
        self.config, self.state = parent / "config", parent / "state"
        self.config.mkdir()

    def start(self) -> Files:
        return Files(self.config, state=str(self.state))

    def entries(self) -> list[pathlib.Path]:
        return [path for path in self.state.rglob("*") if path.is_file()] if self.state.exists() else []


@pytest.fixture
def restarting(tmp_path: pathlib.Path) -> Restarting:
    return Restarting(tmp_path)


@pytest.mark.parametrize(
    "broken", ["a: [", service("a", 0), service("a", 0) + "---\n" + RULE.replace("1.5s", "soon"), "\0"]
)
def test_last_good_objects_survive_a_restart_with_a_broken_file(broken: str, restarting: Restarting) -> None:
    before = restarting.start()
    before.write("x.yaml", service("a", 81) + "---\n" + RULE)
    before.tell("x.yaml")
    before.write("x.yaml", broken)
    before.tell("x.yaml")
    after = restarting.start()
    assert tables(after.mesh) == tables(before.mesh)
    assert before.services == {"a": 81}
    old = {(p.object.kind.name, p.object.name) for p in after.problems if p.code == "old-version"}
    assert ("Service", "a") in old
    assert [p for p in after.problems if p.code != "old-version"] == list(before.problems)
    after.write("x.yaml", service("a", 82))
    after.tell("x.yaml")
    assert (after.services, after.codes, restarting.entries()) == ({"a": 82}, [], [])


def test_what_was_kept_of_a_file_is_kept_over_a_second_restart(restarting: Restarting) -> None:
    first = restarting.start()
    first.write("x.yaml", service("a", 81))
    first.tell("x.yaml")
    first.write("x.yaml", "a: [")
    first.tell("x.yaml")
    second = restarting.start()
    third = restarting.start()
    assert first.services == second.services == third.services == {"a": 81}
    assert second.codes == third.codes == ["syntax-error", "old-version"]
    third.write("x.yaml", service("a", 0) + "---\n" + service("b", 5))
    third.tell("x.yaml")
    assert third.services == {"a": 81, "b": 5}
    assert sorted(third.codes) == ["bad-port", "old-version"]
    assert restarting.start().services == {"a": 81, "b": 5}


def test_a_version_that_was_read_after_the_restart_is_not_old(restarting: Restarting) -> None:
    first = restarting.start()
    for text in (service("a", 81), "a: ["):
        first.write("x.yaml", text)
        first.tell("x.yaml")
    second = restarting.start()
    for text in (service("a", 82), service("a", 0)):
        second.write("x.yaml", text)
        second.tell("x.yaml")
    assert (second.services, second.codes) == ({"a": 82}, ["bad-port"])
    assert restarting.start().services == {"a": 82}


def test_a_mesh_without_mistakes_writes_nothing(restarting: Restarting) -> None:
    files = restarting.start()
    files.write("x.yaml", service("a"))
    files.tell("x.yaml")
    assert not restarting.state.exists()
    without = Files(restarting.config)
    without.write("x.yaml", "a: [")
    without.tell("x.yaml")
    assert without.services == {"a": 80}
    assert not restarting.state.exists()


def test_files_that_go_take_what_was_kept_of_them_with_them(restarting: Restarting) -> None:
    files = restarting.start()
    for name in "xy":
        files.write(f"{name}.yaml", service(name))
        files.tell(f"{name}.yaml")
        files.write(f"{name}.yaml", "a: [")
        files.tell(f"{name}.yaml")
    assert len(restarting.entries()) == 2
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in restarting.entries())
    (restarting.config / "x.yaml").unlink()
    files.tell("x.yaml")
    assert len(restarting.entries()) == 1
    (restarting.config / "y.yaml").unlink()
    assert restarting.start().services == {}
    assert restarting.entries() == []


def test_a_state_folder_that_cannot_be_used_stops_nothing(
    restarting: Restarting, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = restarting.start()
    files.write("x.yaml", service("a"))
    files.tell("x.yaml")
    restarting.state.write_text("a file in its place")
    files.write("x.yaml", "a: [")
    files.tell("x.yaml")
    assert files.services == {"a": 80}
    restarting.state.unlink()
    files.write("x.yaml", "a: [[")
    files.tell("x.yaml")
    (entry,) = restarting.entries()
    entry.write_text("{")
    assert restarting.start().services == {}


@pytest.mark.parametrize("kind", [pytest.param(kind, id=str(kind.id)) for kind in CATALOGUE])
def test_objects_of_every_kind_come_back_as_they_were(kind: AnyKind, seed: int, tmp_path: pathlib.Path) -> None:
    chance = randomness.Random(seed)
    key: Any = RegistryKey("c", "ns", "n") if kind.per_cluster else ObjectKey("ns", "n")
    for index in range(30):
        spec = msgspec.convert(
            fitting(mi.type_info(kind.struct), chance, 0), kind.struct, str_keys=True, dec_hook=shape.decode_extension
        )
        o = Object(kind.id, "ns", "n", spec, {"a": "b"}, {"istio.io/x": "y"}, "2026-01-01T00:00:00Z")
        LastGood(str(tmp_path), "files", CATALOGUE).keep(f"{index}.yaml", {(kind.table_name, key): o})
        (entry,) = LastGood(str(tmp_path), "files", CATALOGUE).load(f"{index}.yaml")
        assert entry == (kind.table_name, key, o), f"PYISTIOD_SEED={seed}"
    assert LastGood(str(tmp_path), "other", CATALOGUE).load("0.yaml") == ()
    assert os.listdir(tmp_path)

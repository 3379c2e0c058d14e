"""Last valid objects of files that are now invalid, over restarts."""

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
from pilot.ingest.decode import Entry
from pilot.ingest.files.last_good import LastGood
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import ConfigFolder, service
from tests.property.test_shape import random_value

RULE = """apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: v, namespace: shop, labels: {a: b}, creationTimestamp: "2026-01-01T00:00:00Z"}
spec: {hosts: [a], http: [{route: [{destination: {host: a}}], timeout: 1.5s, retries: {attempts: 2, perTryTimeout: 20ms}}]}
"""


def tables(mesh: Mesh) -> dict[str, dict[Any, Any]]:
    return {name: dict(table.rows()) for name, table in mesh.tables.items()}


class RestartableMesh:
    """A config folder and a state folder for successive control planes."""

    def __init__(self, parent: pathlib.Path) -> None:
        self.config, self.state = parent / "config", parent / "state"
        self.config.mkdir()

    def start(self) -> ConfigFolder:
        return ConfigFolder(self.config, state=str(self.state))

    def entries(self) -> list[pathlib.Path]:
        return [path for path in self.state.rglob("*") if path.is_file()] if self.state.exists() else []


@pytest.fixture
def restartable(tmp_path: pathlib.Path) -> RestartableMesh:
    return RestartableMesh(tmp_path)


@pytest.mark.parametrize(
    "broken", ["a: [", service("a", 0), service("a", 0) + "---\n" + RULE.replace("1.5s", "soon"), "\0"]
)
def test_last_valid_objects_survive_a_restart_with_an_invalid_file(broken: str, restartable: RestartableMesh) -> None:
    before = restartable.start()
    before.write("x.yaml", service("a", 81) + "---\n" + RULE)
    before.notify("x.yaml")
    before.write("x.yaml", broken)
    before.notify("x.yaml")
    after = restartable.start()
    assert tables(after.mesh) == tables(before.mesh)
    assert before.services == {"a": 81}
    old = {(p.object.kind.name, p.object.name) for p in after.problems if p.code == "old-version"}
    assert ("Service", "a") in old
    assert [p for p in after.problems if p.code != "old-version"] == list(before.problems)
    after.write("x.yaml", service("a", 82))
    after.notify("x.yaml")
    assert (after.services, after.codes, restartable.entries()) == ({"a": 82}, [], [])


def test_last_valid_objects_survive_a_second_restart(restartable: RestartableMesh) -> None:
    first = restartable.start()
    first.write("x.yaml", service("a", 81))
    first.notify("x.yaml")
    first.write("x.yaml", "a: [")
    first.notify("x.yaml")
    second = restartable.start()
    third = restartable.start()
    assert first.services == second.services == third.services == {"a": 81}
    assert second.codes == third.codes == ["syntax-error", "old-version"]
    third.write("x.yaml", service("a", 0) + "---\n" + service("b", 5))
    third.notify("x.yaml")
    assert third.services == {"a": 81, "b": 5}
    assert sorted(third.codes) == ["bad-port", "old-version"]
    assert restartable.start().services == {"a": 81, "b": 5}


def test_version_read_after_the_restart_is_not_reported_as_old(restartable: RestartableMesh) -> None:
    first = restartable.start()
    for text in (service("a", 81), "a: ["):
        first.write("x.yaml", text)
        first.notify("x.yaml")
    second = restartable.start()
    for text in (service("a", 82), service("a", 0)):
        second.write("x.yaml", text)
        second.notify("x.yaml")
    assert (second.services, second.codes) == ({"a": 82}, ["bad-port"])
    assert restartable.start().services == {"a": 82}


def test_valid_mesh_stores_nothing(restartable: RestartableMesh) -> None:
    files = restartable.start()
    files.write("x.yaml", service("a"))
    files.notify("x.yaml")
    assert not restartable.state.exists()
    stateless = ConfigFolder(restartable.config)
    stateless.write("x.yaml", "a: [")
    stateless.notify("x.yaml")
    assert stateless.services == {"a": 80}
    assert not restartable.state.exists()


def test_removed_files_remove_their_stored_objects(restartable: RestartableMesh) -> None:
    files = restartable.start()
    for name in "xy":
        files.write(f"{name}.yaml", service(name))
        files.notify(f"{name}.yaml")
        files.write(f"{name}.yaml", "a: [")
        files.notify(f"{name}.yaml")
    assert len(restartable.entries()) == 2
    assert all(entry.stat().st_mode & 0o077 == 0 for entry in restartable.entries())
    (restartable.config / "x.yaml").unlink()
    files.notify("x.yaml")
    assert len(restartable.entries()) == 1
    (restartable.config / "y.yaml").unlink()
    assert restartable.start().services == {}
    assert restartable.entries() == []


def test_unusable_state_folder_is_ignored(restartable: RestartableMesh, monkeypatch: pytest.MonkeyPatch) -> None:
    files = restartable.start()
    files.write("x.yaml", service("a"))
    files.notify("x.yaml")
    restartable.state.write_text("a file in its place")
    files.write("x.yaml", "a: [")
    files.notify("x.yaml")
    assert files.services == {"a": 80}
    restartable.state.unlink()
    files.write("x.yaml", "a: [[")
    files.notify("x.yaml")
    (entry,) = restartable.entries()
    entry.write_text("{")
    assert restartable.start().services == {}


@pytest.mark.parametrize("kind", [pytest.param(kind, id=str(kind.id)) for kind in CATALOGUE])
def test_objects_of_every_kind_round_trip(kind: AnyKind, seed: int, tmp_path: pathlib.Path) -> None:
    rng = randomness.Random(seed)
    key: Any = RegistryKey("c", "ns", "n") if kind.per_cluster else ObjectKey("ns", "n")
    for index in range(30):
        spec = msgspec.convert(
            random_value(mi.type_info(kind.struct), rng, 0), kind.struct, str_keys=True, dec_hook=shape.decode_extension
        )
        row = Object(kind.id, "ns", "n", spec, {"a": "b"}, {"istio.io/x": "y"}, "2026-01-01T00:00:00Z")
        LastGood(str(tmp_path), "files", CATALOGUE).keep(f"{index}.yaml", {(kind.table_name, key): row})
        (entry,) = LastGood(str(tmp_path), "files", CATALOGUE).load(f"{index}.yaml")
        assert entry == Entry(kind.table_name, key, row), f"PYISTIOD_SEED={seed}"
    assert LastGood(str(tmp_path), "other", CATALOGUE).load("0.yaml") == ()
    assert os.listdir(tmp_path)

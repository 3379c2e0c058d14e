"""Kernel notifications for every kind of change, and recovery of the watch."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable

import pytest

from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.batch import Batch
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.files.mesh_files import MeshFiles
from pilot.ingest.ledger import Ledger
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import service

pytestmark = pytest.mark.slow


class WatchedFolders:
    """A folder `config` with a file, and a folder `etc`, both watched, with a debounce of a few milliseconds."""

    def __init__(self, parent: pathlib.Path) -> None:
        self.folder, self.etc = parent / "config", parent / "etc"
        self.folder.mkdir()
        self.etc.mkdir()
        (self.folder / "a.yaml").write_text(service("a"))
        self.mesh, self.problems = Mesh(), ProblemStore(lambda _: None)
        batch = Batch(
            self.mesh, asyncio.get_running_loop(), parse_duration("5ms"), parse_duration("1s"), lambda _: None
        )
        self.source = FileSource(str(self.folder), batch, Ledger(self.problems).source(0, "files"))
        self.mesh_files = MeshFiles(str(self.etc / "mesh"), str(self.etc / "meshNetworks"), batch, self.problems)
        self.source.load_initial()
        self.mesh_files.load_initial()
        batch.flush()

    def ports(self) -> dict[str, int]:
        return {key.name: row.spec.ports[0].port for key, row in SERVICE.table(self.mesh).rows()}

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.01)


@pytest.fixture
async def folders(tmp_path: pathlib.Path) -> AsyncIterator[WatchedFolders]:
    folders = WatchedFolders(tmp_path)
    await folders.source.start()
    await folders.mesh_files.start()
    yield folders
    await folders.source.stop()
    await folders.mesh_files.stop()


async def test_every_kind_of_change_is_detected(folders: WatchedFolders) -> None:
    await folders.until(lambda: folders.ports() == {"a": 80})
    (folders.folder / "a.yaml").write_text(service("a", 81))
    await folders.until(lambda: folders.ports() == {"a": 81})
    (folders.folder / "b.yaml").write_text(service("b"))
    await folders.until(lambda: folders.ports() == {"a": 81, "b": 80})
    (folders.folder / ".tmp").write_text(service("a", 82))
    (folders.folder / ".tmp").rename(folders.folder / "a.yaml")
    await folders.until(lambda: folders.ports() == {"a": 82, "b": 80})
    (folders.folder / "b.yaml").rename(folders.folder / "c.yaml")
    (folders.folder / "a.yaml").unlink()
    await folders.until(lambda: folders.ports() == {"b": 80})
    (folders.folder / "x" / "y").mkdir(parents=True)
    (folders.folder / "x" / "y" / "d.yaml").write_text(service("d"))
    await folders.until(lambda: folders.ports() == {"b": 80, "d": 80})
    (folders.folder / "x" / "y" / "d.yaml").write_text(service("d", 81))
    await folders.until(lambda: folders.ports() == {"b": 80, "d": 81})
    (folders.folder / "x").rename(folders.folder.parent / "x")
    await folders.until(lambda: folders.ports() == {"b": 80})


async def test_changes_before_the_watch_are_detected(tmp_path: pathlib.Path) -> None:
    folders = WatchedFolders(tmp_path)
    (folders.folder / "b.yaml").write_text(service("b"))
    await folders.source.start()
    await folders.until(lambda: folders.ports() == {"a": 80, "b": 80})
    await folders.source.stop()


async def test_replaced_folder_is_watched(folders: WatchedFolders) -> None:
    folders.folder.rename(folders.folder.parent / "old")
    folders.folder.mkdir()
    (folders.folder / "b.yaml").write_text(service("b"))
    await folders.until(lambda: folders.ports() == {"b": 80})
    (folders.folder / "b.yaml").write_text(service("b", 81))
    await folders.until(lambda: folders.ports() == {"b": 81})


async def test_missing_folder_is_reported_once_and_watched_when_it_returns(
    folders: WatchedFolders, caplog: pytest.LogCaptureFixture
) -> None:
    def messages() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.getMessage().startswith(f"cannot watch {folders.folder}")
        ]

    folders.folder.rename(folders.folder.parent / "away")
    await folders.until(lambda: bool(messages()))
    (folders.folder.parent / "away").rename(folders.folder)
    (folders.folder / "b.yaml").write_text(service("b"))
    await folders.until(lambda: folders.ports() == {"a": 80, "b": 80})
    assert len(messages()) == 1


async def test_mesh_config_is_watched(folders: WatchedFolders) -> None:
    mesh, etc = folders.mesh.mesh, folders.etc
    (etc / "mesh").write_text("trustDomain: a.example\n")
    await folders.until(lambda: mesh.peek("mesh").trust_domain == "a.example")
    (etc / "mesh").write_text("trustDomain: [")
    await folders.until(lambda: len(folders.problems) == 1)
    assert mesh.peek("mesh").trust_domain == "a.example"
    (etc / "meshNetworks").write_text("networks: {n: {endpoints: [{fromRegistry: Kubernetes}]}}\n")
    await folders.until(lambda: "n" in mesh.peek("networks").networks)
    (etc / "mesh").unlink()
    await folders.until(lambda: mesh.peek("mesh").trust_domain == "cluster.local")
    assert len(folders.problems) == 0

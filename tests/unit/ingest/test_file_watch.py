"""That the kernel tells of every kind of change, and that watching survives what can happen to a folder."""

from __future__ import annotations

import asyncio
import pathlib
from collections.abc import AsyncIterator, Callable

import pytest

from pilot.config.kinds.kubernetes import SERVICE
from pilot.ingest.batch import Batch
from pilot.ingest.file_source import FileSource
from pilot.ingest.ledger import Ledger
from pilot.ingest.mesh_files import MeshFiles
from pilot.ingest.problems import ProblemStore
from pilot.lib.duration import parse_duration
from pilot.mesh.tables.database import Mesh
from testing.control_planes.config_folder import service

pytestmark = pytest.mark.slow


class Live:
    """A folder `config` with a file, and a folder `etc`, both followed, with a debounce of a few milliseconds."""

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
        return {key.name: o.spec.ports[0].port for key, o in SERVICE.table(self.mesh).rows()}

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not holds():
                await asyncio.sleep(0.01)


@pytest.fixture
async def live(tmp_path: pathlib.Path) -> AsyncIterator[Live]:
    live = Live(tmp_path)
    await live.source.start()
    await live.mesh_files.start()
    yield live
    await live.source.stop()
    await live.mesh_files.stop()


async def test_every_kind_of_change_is_seen(live: Live) -> None:
    await live.until(lambda: live.ports() == {"a": 80})
    (live.folder / "a.yaml").write_text(service("a", 81))
    await live.until(lambda: live.ports() == {"a": 81})
    (live.folder / "b.yaml").write_text(service("b"))
    await live.until(lambda: live.ports() == {"a": 81, "b": 80})
    (live.folder / ".tmp").write_text(service("a", 82))
    (live.folder / ".tmp").rename(live.folder / "a.yaml")
    await live.until(lambda: live.ports() == {"a": 82, "b": 80})
    (live.folder / "b.yaml").rename(live.folder / "c.yaml")
    (live.folder / "a.yaml").unlink()
    await live.until(lambda: live.ports() == {"b": 80})
    (live.folder / "x" / "y").mkdir(parents=True)
    (live.folder / "x" / "y" / "d.yaml").write_text(service("d"))
    await live.until(lambda: live.ports() == {"b": 80, "d": 80})
    (live.folder / "x" / "y" / "d.yaml").write_text(service("d", 81))
    await live.until(lambda: live.ports() == {"b": 80, "d": 81})
    (live.folder / "x").rename(live.folder.parent / "x")
    await live.until(lambda: live.ports() == {"b": 80})


async def test_what_happens_before_the_watch_is_seen_too(tmp_path: pathlib.Path) -> None:
    live = Live(tmp_path)
    (live.folder / "b.yaml").write_text(service("b"))
    await live.source.start()
    await live.until(lambda: live.ports() == {"a": 80, "b": 80})
    await live.source.stop()


async def test_a_folder_that_is_replaced_is_followed_on(live: Live) -> None:
    live.folder.rename(live.folder.parent / "old")
    live.folder.mkdir()
    (live.folder / "b.yaml").write_text(service("b"))
    await live.until(lambda: live.ports() == {"b": 80})
    (live.folder / "b.yaml").write_text(service("b", 81))
    await live.until(lambda: live.ports() == {"b": 81})


async def test_a_folder_that_is_gone_is_told_of_once_and_followed_when_it_is_back(
    live: Live, caplog: pytest.LogCaptureFixture
) -> None:
    def told() -> list[str]:
        return [
            record.getMessage()
            for record in caplog.records
            if record.getMessage().startswith(f"cannot watch {live.folder}")
        ]

    live.folder.rename(live.folder.parent / "away")
    await live.until(lambda: bool(told()))
    (live.folder.parent / "away").rename(live.folder)
    (live.folder / "b.yaml").write_text(service("b"))
    await live.until(lambda: live.ports() == {"a": 80, "b": 80})
    assert len(told()) == 1


async def test_the_mesh_config_is_followed(live: Live) -> None:
    mesh, etc = live.mesh.mesh, live.etc
    (etc / "mesh").write_text("trustDomain: a.example\n")
    await live.until(lambda: mesh.peek("mesh").trust_domain == "a.example")
    (etc / "mesh").write_text("trustDomain: [")
    await live.until(lambda: len(live.problems) == 1)
    assert mesh.peek("mesh").trust_domain == "a.example"
    (etc / "meshNetworks").write_text("networks: {n: {endpoints: [{fromRegistry: Kubernetes}]}}\n")
    await live.until(lambda: "n" in mesh.peek("networks").networks)
    (etc / "mesh").unlink()
    await live.until(lambda: mesh.peek("mesh").trust_domain == "cluster.local")
    assert len(live.problems) == 0

"""The sources that a mesh config names, and how everything that is read first becomes one commit."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pilot.bootstrap import config_sources, first_load
from pilot.bootstrap.clusters.api_servers import IngestTarget
from pilot.bootstrap.config_sources import RANK_STEP, ConfigSources
from pilot.bootstrap.first_load import FirstLoad, PausedClock
from pilot.config.group_kind import GroupKind
from pilot.config.mesh.mesh_config import ConfigSource, MeshConfig
from pilot.ingest.decode import DocumentOrigin
from pilot.ingest.problems import ProblemStore
from pilot.lib.backoff import Backoff
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mcp import stream
from pilot.mcp.stream import CannotConnectError, McpClient
from pilot.settings.parse import load
from testing.mesh.clock import VirtualClock
from testing.mesh.part_recorder import Journal

ENTRY, SECRET = GroupKind("networking.istio.io", "ServiceEntry"), GroupKind("", "Secret")
ENTRIES = GroupKind("networking.istio.io", "WorkloadEntry")
READ = [SimpleNamespace(id=one, is_over_xds=one != SECRET) for one in (ENTRY, SECRET, ENTRIES)]


def ledger_source(rank: int, name: str) -> tuple[str, int, str]:
    return "part", rank, name


def target() -> IngestTarget:
    ledger: Any = SimpleNamespace(source=ledger_source)
    mesh: Any = object()
    batch: Any = object()
    read: Any = READ
    return IngestTarget(mesh, read, batch, ledger, ProblemStore(), Metrics())


# -- the sources of the mesh config ------------------------------------------------------------------------------------


class Sources:
    """The sources of a control plane, of stand-ins; folders have two files each."""

    def __init__(self, patch: pytest.MonkeyPatch, environ: dict[str, str] | None = None) -> None:
        self.journal, self.target, self.settings = Journal(), target(), load([], environ or {}).settings
        self.journal.take_over(patch, config_sources, "FileSource", "McpSource")
        stand_in = self.journal._maker("McpStream")
        patch.setattr(stream, "McpStream", stand_in)

        async def read(_: str) -> dict[str, bytes]:
            return {}

        self.read = read
        self.sources = ConfigSources(self.settings, self.target, 100, read)

    def open(self, *addresses: str) -> None:
        self.sources.open([ConfigSource(address=address) for address in addresses])
        for folder in self.sources.folders:
            folder.load_initial = lambda: 2  # type: ignore[method-assign]
        for source, _ in self.sources.servers:
            source.synced = asyncio.Event()
            source.name = "xds://server"


@pytest.mark.parametrize(
    ("addresses", "ranks", "has_kubernetes"),
    [
        (["fs:///a", "fs:///b"], [100, 100 + RANK_STEP], False),
        (["k8s://", "fs:///a"], [100 + RANK_STEP], True),
        (["fs:///a", "fs:///b", "k8s://", "fs:///c"], [100 - 2 * RANK_STEP, 100 - RANK_STEP, 100 + RANK_STEP], True),
        (["nonsense", "fs:///a"], [100], False),
        ([], [], False),
    ],
)
def test_folders_come_before_or_after_the_api_server_as_they_are_named(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], ranks: list[int], has_kubernetes: bool
) -> None:
    it = Sources(monkeypatch)
    it.open(*addresses)
    assert [given[2][1] for given in it.journal.given("FileSource")] == ranks
    assert it.sources.has_kubernetes is has_kubernetes
    assert RANK_STEP >= 2, "other clusters of the API server have the rank after it"


def test_a_folder_is_read_as_those_of_flags_are(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Sources(
        monkeypatch,
        {"PILOT_MAX_CONFIG_FILE_BYTES": "77", "PILOT_STATE_DIR": "/state", "REVISION": "blue", "CLUSTER_ID": "east"},
    )
    it.open("fs:///folder")
    origin = DocumentOrigin("east", True, "blue")
    assert it.journal.given("FileSource") == [
        ("/folder", it.target.batch, ("part", 100, "/folder"), origin, READ, 77, "/state")
    ]


async def test_a_server_is_asked_for_configuration_by_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Sources(monkeypatch, {"POD_NAME": "istiod-1", "POD_NAMESPACE": "mesh", "REVISION": "blue"})
    tls: Any = SimpleNamespace(mode="SIMPLE", subject_alt_names=("mcp.example.com",), credential_name="roots", sni="")
    it.sources.open([replace(ConfigSource(address="xds://host:15051"), tls_settings=tls)])
    [(name, kinds, batch, ledger, rank, origin, problems)] = it.journal.given("McpSource")
    assert (name, batch, ledger, rank, origin, problems) == (
        "xds://host:15051",
        it.target.batch,
        it.target.ledger,
        100,
        DocumentOrigin("Kubernetes", True, "blue"),
        it.target.problems,
    )
    assert [kind.id for kind in kinds] == [ENTRY, ENTRIES], "not what clusters have of their own"
    [(reached, client, types, receive, tell, backoff, _)] = it.journal.given("McpStream")
    assert (reached.address, reached.server_name) == ("host:15051", "mcp.example.com")
    assert client == McpClient("sidecar~127.0.0.1~istiod-1.mesh~mesh.svc.cluster.local", "mesh", "blue")
    assert backoff == Backoff(0.5, 30.0)
    with pytest.raises(CannotConnectError, match=r"there is no Secret roots with cacert or ca.crt"):
        await reached.credentials()
    assert (callable(types), callable(receive), callable(tell)) == (True, True, True)


async def test_all_sources_are_read_before_the_start_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    it = Sources(monkeypatch)
    it.open("fs:///a", "fs:///b", "xds://one:1", "xds://two:2")
    it.sources.servers[1][0].synced.set()
    loading = asyncio.create_task(it.sources.load())
    while not caplog.messages:
        await asyncio.sleep(0.001)
    assert not loading.done()
    it.sources.servers[0][0].synced.set()
    assert await loading == 4
    assert caplog.messages == ["waiting for xds://server"], "the other one has answered already"
    assert it.journal.lines == ["McpStream.start"] * 2
    await it.sources.watch()
    assert it.journal.lines[2:] == ["FileSource.start"] * 2
    await it.sources.stop()
    assert it.journal.lines[4:] == ["FileSource.stop", "FileSource.stop", "McpStream.stop", "McpStream.stop"]


async def test_a_folder_that_cannot_be_read_ends_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    it = Sources(monkeypatch)
    it.open("fs:///a")

    def fail() -> int:
        raise FileNotFoundError(2, "No such file or directory", "/a")

    it.sources.folders[0].load_initial = fail  # type: ignore[method-assign]
    with pytest.raises(StartError, match=r"^configSources: /a: No such file or directory$"):
        await it.sources.load()


def test_other_sources_are_told_of_until_they_are_the_same_again(monkeypatch: pytest.MonkeyPatch) -> None:
    it, mesh = Sources(monkeypatch), MeshConfig()
    it.open("fs:///a")
    same = replace(mesh, config_sources=(ConfigSource(address="fs:///a"),))
    it.sources.on_mesh_config(same)
    assert list(it.target.problems) == []
    it.sources.on_mesh_config(mesh)
    [problem] = it.target.problems
    assert (problem.code, problem.path, str(problem.severity)) == ("needs-restart", "configSources", "warning")
    it.sources.on_mesh_config(same)
    assert list(it.target.problems) == []


# -- the first load ----------------------------------------------------------------------------------------------------


class Loading:
    """A first load of two folders, and what happened in which order."""

    def __init__(
        self,
        mesh: MeshConfig | None = None,
        has_kubernetes: bool = False,
        folders: int = 2,
        named_kubernetes: bool = True,
    ) -> None:
        self.lines: list[str] = []
        self.clock, self.mesh, self.reads, self.threads = PausedClock(VirtualClock()), mesh, list[bool](), set[Any]()
        self.fails: BaseException | None = None
        source: Any = SimpleNamespace(load_initial=self._load)
        files: Any = SimpleNamespace(load_initial=lambda: self.lines.append("mesh files"))
        sources: Any = SimpleNamespace(
            open=self._open, load=self._load_sources, stop=self._does("stop sources"), has_kubernetes=named_kubernetes
        )
        kubernetes: Any = (
            SimpleNamespace(start=self._start, stop=self._does("stop kubernetes")) if has_kubernetes else None
        )
        batch: Any = SimpleNamespace(
            waiting=lambda table, key: self.mesh if (table, key) == ("MeshConfig", "mesh") else None, flush=self._flush
        )
        self.load = FirstLoad(files, [source] * folders, kubernetes, sources, batch, self.clock)

    def _does(self, what: str) -> Any:
        async def work() -> None:
            self.lines.append(what)

        return work

    def _load(self) -> int:
        self.threads.add(threading.current_thread())
        self.lines.append("read a folder" if not gc.isenabled() else "read a folder with the collector")
        if self.fails is not None:
            raise self.fails
        return 3

    def _open(self, named: Any) -> None:
        self.lines.append(f"open {[one.address for one in named]}")

    async def _load_sources(self) -> int:
        self.lines.append("read sources")
        return 4

    async def _start(self, reads_configuration: Any) -> None:
        self.reads.append(reads_configuration())

    def _flush(self) -> None:
        assert not isinstance(self.clock.call_later(1.0, lambda: None), first_load._NoTimer), "timers ring from now on"
        self.lines.append("commit")


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the collector is told."""
    told: list[Any] = []
    monkeypatch.setattr(gc, "freeze", lambda: told.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *given: told.append(given))
    return told


async def test_everything_is_one_commit_and_the_collector_looks_at_none_of_it(
    frozen: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    it = Loading()
    await it.load.start()
    assert it.lines == ["mesh files", "read a folder", "read a folder", "open []", "read sources", "commit"]
    assert threading.main_thread() not in it.threads, "the loop answers meanwhile"
    assert frozen == ["freeze", (10_000, 500, 100)]
    assert gc.isenabled()
    [line] = caplog.messages
    assert line.startswith("read 10 files in 0.")


NAMED = replace(MeshConfig(), config_sources=(ConfigSource(address="fs:///a"),))


@pytest.mark.parametrize(
    ("mesh", "folders", "named_kubernetes", "opened", "reads"),
    [
        (None, 2, True, "open []", False),
        (None, 0, False, "open []", True),
        (MeshConfig(), 0, False, "open []", True),
        (MeshConfig(), 2, True, "open []", False),
        (NAMED, 0, False, "open ['fs:///a']", False),
        (NAMED, 0, True, "open ['fs:///a']", True),
        (NAMED, 2, True, "open ['fs:///a']", True),
    ],
)
async def test_configuration_is_read_from_the_api_server_where_it_is_named_or_nothing_else_is(
    frozen: list[Any], mesh: MeshConfig | None, folders: int, named_kubernetes: bool, opened: str, reads: bool
) -> None:
    it = Loading(mesh, True, folders, named_kubernetes)
    await it.load.start()
    assert (it.reads, opened in it.lines, it.lines.count("read a folder")) == ([reads], True, folders)


@pytest.mark.parametrize("has_kubernetes", [True, False])
@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError(13, "Permission denied", "/a"), "^--configDir: /a: Permission denied$"),
        (OSError("odd"), "^--configDir: None: odd$"),
        (StartError("kubeconfig: nonsense"), "^kubeconfig: nonsense$"),
    ],
)
async def test_a_load_that_fails_leaves_nothing_open(
    frozen: list[Any], error: Exception, told: str, has_kubernetes: bool
) -> None:
    it = Loading(has_kubernetes=has_kubernetes)
    it.fails = error
    with pytest.raises(StartError, match=told):
        await it.load.start()
    assert it.lines[2:] == ["stop sources", *(["stop kubernetes"] if has_kubernetes else [])]
    assert frozen == []
    assert gc.isenabled()

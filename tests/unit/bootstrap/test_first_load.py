"""Config sources of the mesh config, and the single commit of the first load."""

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
READ = [SimpleNamespace(id=kind, is_over_xds=kind != SECRET) for kind in (ENTRY, SECRET, ENTRIES)]


def ledger_source(rank: int, name: str) -> tuple[str, int, str]:
    return "part", rank, name


def target() -> IngestTarget:
    ledger: Any = SimpleNamespace(source=ledger_source)
    mesh: Any = object()
    batch: Any = object()
    read: Any = READ
    return IngestTarget(mesh, read, batch, ledger, ProblemStore(), Metrics())


# -- config sources ----------------------------------------------------------------------------------------------------


class Sources:
    """Config sources with stand-ins. Each folder has two files."""

    def __init__(self, patch: pytest.MonkeyPatch, environ: dict[str, str] | None = None) -> None:
        self.journal, self.target, self.settings = Journal(), target(), load([], environ or {}).settings
        self.journal.take_over(patch, config_sources, "FileSource", "McpSource")
        stream_stand_in = self.journal._maker("McpStream")
        patch.setattr(stream, "McpStream", stream_stand_in)

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
def test_folder_ranks_follow_the_configured_order(
    monkeypatch: pytest.MonkeyPatch, addresses: list[str], ranks: list[int], has_kubernetes: bool
) -> None:
    sources = Sources(monkeypatch)
    sources.open(*addresses)
    assert [args[2][1] for args in sources.journal.given("FileSource")] == ranks
    assert sources.sources.has_kubernetes is has_kubernetes
    assert RANK_STEP >= 2, "remote clusters take the next rank"


def test_folder_source_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(
        monkeypatch,
        {"PILOT_MAX_CONFIG_FILE_BYTES": "77", "PILOT_STATE_DIR": "/state", "REVISION": "blue", "CLUSTER_ID": "east"},
    )
    sources.open("fs:///folder")
    origin = DocumentOrigin("east", True, "blue")
    assert sources.journal.given("FileSource") == [
        ("/folder", sources.target.batch, ("part", 100, "/folder"), origin, READ, 77, "/state")
    ]


async def test_config_server_request(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(monkeypatch, {"POD_NAME": "istiod-1", "POD_NAMESPACE": "mesh", "REVISION": "blue"})
    tls: Any = SimpleNamespace(mode="SIMPLE", subject_alt_names=("mcp.example.com",), credential_name="roots", sni="")
    sources.sources.open([replace(ConfigSource(address="xds://host:15051"), tls_settings=tls)])
    [(name, kinds, batch, ledger, rank, origin, problems)] = sources.journal.given("McpSource")
    assert (name, batch, ledger, rank, origin, problems) == (
        "xds://host:15051",
        sources.target.batch,
        sources.target.ledger,
        100,
        DocumentOrigin("Kubernetes", True, "blue"),
        sources.target.problems,
    )
    assert [kind.id for kind in kinds] == [ENTRY, ENTRIES], "Secrets are not requested from config servers"
    [(endpoint, client, types, on_response, on_status, backoff, _)] = sources.journal.given("McpStream")
    assert (endpoint.address, endpoint.server_name) == ("host:15051", "mcp.example.com")
    assert client == McpClient("sidecar~127.0.0.1~istiod-1.mesh~mesh.svc.cluster.local", "mesh", "blue")
    assert backoff == Backoff(0.5, 30.0)
    with pytest.raises(CannotConnectError, match=r"there is no Secret roots with cacert or ca.crt"):
        await endpoint.credentials()
    assert (callable(types), callable(on_response), callable(on_status)) == (True, True, True)


async def test_load_waits_for_all_sources(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "pilot")
    sources = Sources(monkeypatch)
    sources.open("fs:///a", "fs:///b", "xds://one:1", "xds://two:2")
    sources.sources.servers[1][0].synced.set()
    load_task = asyncio.create_task(sources.sources.load())
    while not caplog.messages:
        await asyncio.sleep(0.001)
    assert not load_task.done()
    sources.sources.servers[0][0].synced.set()
    assert await load_task == 4
    assert caplog.messages == ["waiting for xds://server"], "the other server is already synced"
    assert sources.journal.lines == ["McpStream.start"] * 2
    await sources.sources.watch()
    assert sources.journal.lines[2:] == ["FileSource.start"] * 2
    await sources.sources.stop()
    assert sources.journal.lines[4:] == ["FileSource.stop", "FileSource.stop", "McpStream.stop", "McpStream.stop"]


async def test_unreadable_folder_aborts_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    sources = Sources(monkeypatch)
    sources.open("fs:///a")

    def fail() -> int:
        raise FileNotFoundError(2, "No such file or directory", "/a")

    sources.sources.folders[0].load_initial = fail  # type: ignore[method-assign]
    with pytest.raises(StartError, match=r"^configSources: /a: No such file or directory$"):
        await sources.sources.load()


def test_changed_sources_are_reported_until_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    sources, mesh = Sources(monkeypatch), MeshConfig()
    sources.open("fs:///a")
    same = replace(mesh, config_sources=(ConfigSource(address="fs:///a"),))
    sources.sources.on_mesh_config(same)
    assert list(sources.target.problems) == []
    sources.sources.on_mesh_config(mesh)
    [problem] = sources.target.problems
    assert (problem.code, problem.path, str(problem.severity)) == ("needs-restart", "configSources", "warning")
    sources.sources.on_mesh_config(same)
    assert list(sources.target.problems) == []


# -- the first load ----------------------------------------------------------------------------------------------------


class Loading:
    """A first load of two folders, with a record of its steps."""

    def __init__(
        self,
        mesh: MeshConfig | None = None,
        has_kubernetes: bool = False,
        folders: int = 2,
        kubernetes_source: bool = True,
    ) -> None:
        self.lines: list[str] = []
        self.clock, self.mesh, self.reads, self.threads = PausedClock(VirtualClock()), mesh, list[bool](), set[Any]()
        self.fails: BaseException | None = None
        source: Any = SimpleNamespace(load_initial=self._load)
        files: Any = SimpleNamespace(load_initial=lambda: self.lines.append("mesh files"))
        sources: Any = SimpleNamespace(
            open=self._open,
            load=self._load_sources,
            stop=self._recorder("stop sources"),
            has_kubernetes=kubernetes_source,
        )
        kubernetes: Any = (
            SimpleNamespace(start=self._start, stop=self._recorder("stop kubernetes")) if has_kubernetes else None
        )
        batch: Any = SimpleNamespace(
            waiting=lambda table, key: self.mesh if (table, key) == ("MeshConfig", "mesh") else None, flush=self._flush
        )
        self.load = FirstLoad(files, [source] * folders, kubernetes, sources, batch, self.clock)

    def _recorder(self, line: str) -> Any:
        async def work() -> None:
            self.lines.append(line)

        return work

    def _load(self) -> int:
        self.threads.add(threading.current_thread())
        self.lines.append("read a folder" if not gc.isenabled() else "read a folder with the collector")
        if self.fails is not None:
            raise self.fails
        return 3

    def _open(self, config_sources: Any) -> None:
        self.lines.append(f"open {[source.address for source in config_sources]}")

    async def _load_sources(self) -> int:
        self.lines.append("read sources")
        return 4

    async def _start(self, reads_configuration: Any) -> None:
        self.reads.append(reads_configuration())

    def _flush(self) -> None:
        assert not isinstance(self.clock.call_later(1.0, lambda: None), first_load._NoTimer), "the clock was resumed"
        self.lines.append("commit")


@pytest.fixture
def gc_calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Calls to the garbage collector."""
    calls: list[Any] = []
    monkeypatch.setattr(gc, "freeze", lambda: calls.append("freeze"))
    monkeypatch.setattr(gc, "set_threshold", lambda *args: calls.append(args))
    return calls


async def test_first_load_is_one_commit_excluded_from_collection(
    gc_calls: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pilot")
    sources = Loading()
    await sources.load.start()
    assert sources.lines == ["mesh files", "read a folder", "read a folder", "open []", "read sources", "commit"]
    assert threading.main_thread() not in sources.threads, "the event loop stays responsive"
    assert gc_calls == ["freeze", (10_000, 500, 100)]
    assert gc.isenabled()
    [line] = caplog.messages
    assert line.startswith("read 10 files in 0.")


WITH_SOURCES = replace(MeshConfig(), config_sources=(ConfigSource(address="fs:///a"),))


@pytest.mark.parametrize(
    ("mesh", "folders", "kubernetes_source", "open_line", "reads"),
    [
        (None, 2, True, "open []", False),
        (None, 0, False, "open []", True),
        (MeshConfig(), 0, False, "open []", True),
        (MeshConfig(), 2, True, "open []", False),
        (WITH_SOURCES, 0, False, "open ['fs:///a']", False),
        (WITH_SOURCES, 0, True, "open ['fs:///a']", True),
        (WITH_SOURCES, 2, True, "open ['fs:///a']", True),
    ],
)
async def test_api_server_is_the_default_configuration_source(
    gc_calls: list[Any], mesh: MeshConfig | None, folders: int, kubernetes_source: bool, open_line: str, reads: bool
) -> None:
    sources = Loading(mesh, True, folders, kubernetes_source)
    await sources.load.start()
    assert (sources.reads, open_line in sources.lines, sources.lines.count("read a folder")) == ([reads], True, folders)


@pytest.mark.parametrize("has_kubernetes", [True, False])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/a"), "^--configDir: /a: Permission denied$"),
        (OSError("odd"), "^--configDir: None: odd$"),
        (StartError("kubeconfig: nonsense"), "^kubeconfig: nonsense$"),
    ],
)
async def test_failed_load_closes_everything(
    gc_calls: list[Any], error: Exception, message: str, has_kubernetes: bool
) -> None:
    sources = Loading(has_kubernetes=has_kubernetes)
    sources.fails = error
    with pytest.raises(StartError, match=message):
        await sources.load.start()
    assert sources.lines[2:] == ["stop sources", *(["stop kubernetes"] if has_kubernetes else [])]
    assert gc_calls == []
    assert gc.isenabled()

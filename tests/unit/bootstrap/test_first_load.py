"""First load of a process, in a single commit."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from pilot.bootstrap import first_load
from pilot.bootstrap.first_load import GC_THRESHOLDS, FirstLoad, PausedClock, refuse_invalid_mesh
from pilot.config.mesh.mesh_config import ConfigSource, MeshConfig
from pilot.config.problem import Problem, Severity
from pilot.ingest.mesh_config import MESH, NETWORKS
from pilot.lib.start_error import StartError
from testing.mesh.clock import VirtualClock

# -- the first load ----------------------------------------------------------------------------------------------------


class Loading:
    """A first load of two folders, with a record of its steps."""

    def __init__(
        self,
        mesh: MeshConfig | None = None,
        has_kubernetes: bool = False,
        folders: int = 2,
        kubernetes_source: bool = True,
        on_mesh: Callable[[], None] = lambda: None,
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
        self.load = FirstLoad(files, [source] * folders, kubernetes, sources, batch, self.clock, on_mesh)

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
    assert gc_calls == ["freeze", GC_THRESHOLDS]
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
async def test_invalid_mesh_config_is_refused(gc_calls: list[Any], has_kubernetes: bool) -> None:
    problems = [
        Problem(code="unknown-field", object=MESH, path="trustDomian", message="unknown field", file="/m", line=2),
        Problem(code="hint", object=MESH, message="odd", severity=Severity.WARNING),
        Problem(code="unreadable-file", object=NETWORKS, message="No such file or directory", file="/n"),
        Problem(code="other", message="another object's"),
    ]
    sources = Loading(has_kubernetes=has_kubernetes, on_mesh=lambda: refuse_invalid_mesh(problems))
    with pytest.raises(StartError) as caught:
        await sources.load.start()
    assert str(caught.value) == (
        "invalid mesh config and mesh networks: /m:2: trustDomian: unknown field; /n: No such file or directory\n"
        "correct this, or start with --allow-invalid-mesh-config to use the defaults until it is corrected"
    )
    assert not any(line.startswith("open") for line in sources.lines)


def test_defaults_are_not_advised_for_a_file_that_is_no_mesh_config() -> None:
    problem = Problem(code="wrong-document", object=MESH, path="kind", message="this is a Service", file="/m", line=2)
    with pytest.raises(StartError) as caught:
        refuse_invalid_mesh([problem])
    assert str(caught.value) == "invalid mesh config: /m:2: kind: this is a Service"


@pytest.mark.parametrize("has_kubernetes", [True, False])
@pytest.mark.parametrize(
    ("error", "message"),
    [
        (PermissionError(13, "Permission denied", "/a"), "^--configDir: /a: Permission denied$"),
        (
            NotADirectoryError(20, "Not a directory", "/a"),
            "^--configDir: /a: Not a directory; name the folder of the file$",
        ),
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

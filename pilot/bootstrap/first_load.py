"""Reads all configuration before the control plane serves proxies."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pilot.bootstrap.clusters.api_servers import ApiServers
from pilot.bootstrap.config_sources import ConfigSources
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.config.problem import Problem, Severity
from pilot.ingest.batch import Batch, Clock, Timer
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.files.mesh_files import UNREADABLE, MeshFiles
from pilot.ingest.mesh_config import MESH, NETWORKS, WRONG_DOCUMENT
from pilot.lib.logging.log import scope
from pilot.lib.malloc import map_large_allocations
from pilot.lib.similar_path import suggest_path
from pilot.lib.start_error import StartError
from pilot.mesh.tables.database import MESH_CONFIG

_log = scope("default")
_TITLES = {MESH: "mesh config", NETWORKS: "mesh networks"}
_FLAGS = {MESH: "--meshConfig", NETWORKS: "--networksConfig"}
LISTED = 5
"""Maximum number of errors that the message about an invalid mesh config lists."""
GC_THRESHOLDS = (2_000, 5, 10_000)
"""Thresholds of the garbage collector after the first load.

A collection blocks the event loop for 0.3 to 0.7 µs for each object that it examines. It examines several times as many
young objects as the first threshold, because each older object that is freed is subtracted. Objects that survive two
collections are examined again only after a hundred million allocations: nearly all of them stay alive, and connections,
watches, edits and requests leave no cycles among them.
"""


def refuse_invalid_mesh(problems: Iterable[Problem]) -> None:
    """Raise StartError if the mesh config or the mesh networks are invalid or missing."""
    errors = [p for p in problems if p.object in (MESH, NETWORKS) and p.severity is Severity.ERROR]
    if errors and all(p.code == UNREADABLE for p in errors):
        raise StartError("; ".join(f"{_FLAGS[p.object]}: {_describe(p)}" for p in errors))
    if errors:
        more = f" and {len(errors) - LISTED} more errors" if len(errors) > LISTED else ""
        message = (
            f"invalid {' and '.join(dict.fromkeys(_TITLES[p.object] for p in errors))}: "
            f"{'; '.join(map(_describe, errors[:LISTED]))}{more}"
        )
        if any(p.code != WRONG_DOCUMENT for p in errors):
            message += (
                "\ncorrect this, or start with --allow-invalid-mesh-config to use the defaults until it is corrected"
            )
        raise StartError(message)


def _describe(problem: Problem) -> str:
    place = f"{problem.file}:{problem.line}" if problem.line else problem.file
    return ": ".join(part for part in (place, problem.path, problem.message) if part)


class FirstLoad:
    """Fills the tables in one commit.

    `on_mesh` is called once the mesh config and the mesh networks have been read, and may raise StartError.
    """

    def __init__(
        self,
        mesh_files: MeshFiles,
        files: Sequence[FileSource],
        api_servers: ApiServers | None,
        sources: ConfigSources,
        batch: Batch,
        clock: PausedClock,
        on_mesh: Callable[[], None] = lambda: None,
    ) -> None:
        self._mesh_files, self._files, self._api_servers, self._sources = mesh_files, files, api_servers, sources
        self._batch, self._clock, self._on_mesh = batch, clock, on_mesh

    async def start(self) -> None:
        """Read everything. Files are read in a thread, so that /ready is served meanwhile.

        Raise StartError if a folder is unreadable, a kubeconfig is unusable, or `on_mesh` raises it.
        """
        started_at = time.monotonic()
        gc.disable()  # nothing that is read is garbage
        try:
            self._mesh_files.load_initial()
            count = sum([await asyncio.to_thread(source.load_initial) for source in self._files])
            if self._api_servers is not None:
                await self._api_servers.start(self._open_sources)
            else:
                self._open_sources()
            count += await self._sources.load()
            self._clock.resume()
            self._batch.flush()
            gc.freeze()
        except BaseException as error:
            await self._sources.stop()
            if self._api_servers is not None:
                await self._api_servers.stop()
            if not isinstance(error, OSError):
                raise
            if isinstance(error, NotADirectoryError):
                hint = "; name the folder of the file"
            else:
                hint = suggest_path(error.filename or "")
            raise StartError(f"--configDir: {error.filename}: {error.strerror or error}{hint}") from error
        finally:
            gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)
        map_large_allocations()  # not before, because the large lists of the first load would be mapped and unmapped
        _log.info("read %d files in %.1f s", count, time.monotonic() - started_at)

    def _open_sources(self) -> bool:
        """Open the config sources in the mesh config. Return whether configuration is read from the API server.

        It is read from there if the mesh config lists the API server, or if there are neither config sources nor
        folders.
        """
        self._on_mesh()
        mesh = self._batch.waiting(MESH_CONFIG, "mesh")
        sources = mesh.config_sources if isinstance(mesh, MeshConfig) else ()
        self._sources.open(sources)
        return self._sources.has_kubernetes if sources else not self._files


class PausedClock:
    """A clock whose timers do nothing until `resume` is called, so that the first load is one commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._is_paused = clock, True

    def resume(self) -> None:
        self._is_paused = False

    def time(self) -> float:
        return self._clock.time()

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer:
        return _NoTimer() if self._is_paused else self._clock.call_later(delay, callback)


class _NoTimer:
    def cancel(self) -> None:
        return None

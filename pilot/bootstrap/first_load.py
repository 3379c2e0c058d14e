"""Reads all configuration before the control plane serves proxies."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from pilot.bootstrap.clusters.api_servers import ApiServers
from pilot.bootstrap.config_sources import ConfigSources
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.batch import Batch, Clock, Timer
from pilot.ingest.files.file_source import FileSource
from pilot.ingest.files.mesh_files import MeshFiles
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError
from pilot.mesh.tables.database import MESH_CONFIG

_log = scope("default")
GC_THRESHOLDS = (10_000, 500, 100)
"""Thresholds of the garbage collector after the first load.

A collection of 10,000 young objects blocks the event loop for about 5 ms. Older objects are collected only after five
million allocations, because nearly all of them stay alive.
"""


class FirstLoad:
    """Fills the tables in one commit."""

    def __init__(
        self,
        mesh_files: MeshFiles,
        files: Sequence[FileSource],
        api_servers: ApiServers | None,
        sources: ConfigSources,
        batch: Batch,
        clock: PausedClock,
    ) -> None:
        self._mesh_files, self._files, self._api_servers, self._sources = mesh_files, files, api_servers, sources
        self._batch, self._clock = batch, clock

    async def start(self) -> None:
        """Read everything. Files are read in a thread, so that /ready is served meanwhile.

        Raise StartError if a folder is unreadable or a kubeconfig is unusable.
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
            raise StartError(f"--configDir: {error.filename}: {error.strerror or error}") from error
        finally:
            gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)
        _log.info("read %d files in %.1f s", count, time.monotonic() - started_at)

    def _open_sources(self) -> bool:
        """Open the config sources in the mesh config. Return whether configuration is read from the API server.

        It is read from there if the mesh config lists the API server, or if there are neither config sources nor
        folders.
        """
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

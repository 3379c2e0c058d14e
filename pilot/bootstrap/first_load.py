"""Reading all configuration before anything is served."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Sequence
from typing import Any

from pilot.bootstrap.config_sources import ConfigSources
from pilot.bootstrap.kubernetes import Kubernetes
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.batch import Batch, Clock, Timer
from pilot.ingest.file_source import FileSource
from pilot.ingest.mesh_files import MeshFiles
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.mesh.tables.database import MESH_CONFIG

_log = scope("default")
COLLECTION = (10_000, 500, 100)
"""The collector's thresholds. It looks at 10,000 young objects at a time, in some 5 ms, in which nothing else runs, and at older ones after five
million new objects: nearly all of them stay."""


class FirstLoad:
    """Fills the tables in one commit."""

    def __init__(
        self,
        mesh_files: MeshFiles,
        files: Sequence[FileSource],
        kubernetes: Kubernetes | None,
        sources: ConfigSources,
        batch: Batch,
        clock: HeldClock,
    ) -> None:
        self._mesh_files, self._files, self._kubernetes, self._sources = mesh_files, files, kubernetes, sources
        self._batch, self._clock = batch, clock

    async def start(self) -> None:
        """Reads beside the event loop, which answers /ready meanwhile. StartError where a folder cannot be read, or a kubeconfig not be used."""
        started = time.monotonic()
        gc.disable()  # nothing of what is read is garbage
        try:
            self._mesh_files.load_initial()
            count = sum([await asyncio.to_thread(source.load_initial) for source in self._files])
            if self._kubernetes is not None:
                await self._kubernetes.start(self._open_sources)
            else:
                self._open_sources()
            count += await self._sources.load()
            self._clock.release()
            self._batch.flush()
            gc.freeze()
        except BaseException as error:
            await self._sources.stop()
            if self._kubernetes is not None:
                await self._kubernetes.stop()
            if not isinstance(error, OSError):
                raise
            raise StartError(f"--configDir: {error.filename}: {error.strerror or error}") from error
        finally:
            gc.enable()
        gc.set_threshold(*COLLECTION)
        _log.info("read %d files in %.1f s", count, time.monotonic() - started)

    def _open_sources(self) -> bool:
        """Opens the sources that the mesh config names; returns whether configuration is read from the API server: where nothing else is named,
        or it is named too."""
        mesh = self._batch.waiting(MESH_CONFIG, "mesh")
        named = mesh.config_sources if isinstance(mesh, MeshConfig) else ()
        self._sources.open(named)
        return self._sources.has_kubernetes if named else not self._files


class HeldClock:
    """A clock whose timers do not ring before `release`, so that the first load is one commit."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._held = clock, True

    def release(self) -> None:
        self._held = False

    def time(self) -> float:
        return self._clock.time()

    def call_later(self, delay: float, callback: Callable[[], Any], /) -> Timer:
        return _NoTimer() if self._held else self._clock.call_later(delay, callback)


class _NoTimer:
    def cancel(self) -> None:
        return None

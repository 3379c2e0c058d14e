"""Envoy's end of an ADS stream."""

from __future__ import annotations

import asyncio
import functools
from concurrent import futures
from typing import Any

from pilot.agent.wasm.extension_stream import ExtensionStream
from pilot.agent.xds.response_type import read_type_url
from pilot.lib.log import scope
from pilot.lib.xds_types import EXTENSION

_log = scope("xdsproxy")


class DownstreamWriter:
    """Envoy's end of a stream. Responses with the configuration of extensions wait in a line of their own while modules are fetched for them; all
    others are written as they come. What cannot be had is tried again after a pause, of `pauses` the shortest and the longest."""

    def __init__(self, context: Any, extensions: ExtensionStream | None, pauses: tuple[float, float]) -> None:
        self._context, self._extensions, self._pauses = context, extensions, pauses
        self._lock, self._waiting = asyncio.Lock(), asyncio.Queue[bytes]()
        self._worker: asyncio.Task[None] | None = None
        self._thread: futures.ThreadPoolExecutor | None = None

    async def write(self, raw: bytes) -> None:
        if self._extensions is None or read_type_url(raw) != EXTENSION:
            await self._pass(raw)
            return
        self._waiting.put_nowait(raw)
        if self._worker is None:
            self._thread = futures.ThreadPoolExecutor(1, "extensions")
            self._worker = asyncio.create_task(self._rewrite_all(self._extensions, self._thread))

    async def finish(self) -> None:
        """Returns when nothing is being written any more, and lets nothing follow: gRPC takes no status while a message is being written."""
        await self._lock.acquire()

    def end(self) -> None:
        """Drops what waits; a fetch that is under way ends by its time."""
        if self._worker is not None:
            self._worker.cancel()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)

    async def _rewrite_all(self, extensions: ExtensionStream, thread: futures.Executor) -> None:
        loop, (shortest, longest) = asyncio.get_running_loop(), self._pauses
        pause = shortest
        while True:
            try:
                raw = await asyncio.wait_for(self._waiting.get(), pause if extensions.waits else None)
                pause = shortest
            except TimeoutError:
                raw, pause = b"", min(2 * pause, longest)
            try:
                work = functools.partial(extensions.take, raw) if raw else extensions.again
                if rewritten := await loop.run_in_executor(thread, work):
                    await self._pass(rewritten)
            except Exception:  # a bug of ours: Envoy keeps what it has
                _log.exception("the configuration of extensions cannot be passed on")

    async def _pass(self, raw: bytes) -> None:
        async with self._lock:
            await self._context.write(raw)

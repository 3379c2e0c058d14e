"""Writes responses to Envoy's ADS stream."""

from __future__ import annotations

import asyncio
import functools
from concurrent import futures
from typing import Any

from pilot.agent.wasm.extension_stream import ExtensionStream
from pilot.agent.xds.response_type import read_type_url
from pilot.lib.logging.log import scope
from pilot.lib.xds_types import EXTENSION

_log = scope("xdsproxy")


class DownstreamWriter:
    """Writes to Envoy's end of a stream.

    Responses with extension configurations go through a separate queue, because their Wasm modules are fetched first.
    All other responses are written immediately. Failed fetches are retried after delays between the two `retry_delays`.
    """

    def __init__(self, context: Any, extensions: ExtensionStream | None, retry_delays: tuple[float, float]) -> None:
        self._context, self._extensions, self._retry_delays = context, extensions, retry_delays
        self._lock, self._queue = asyncio.Lock(), asyncio.Queue[bytes]()
        self._worker: asyncio.Task[None] | None = None
        self._executor: futures.ThreadPoolExecutor | None = None

    async def write(self, raw: bytes) -> None:
        if self._extensions is None or read_type_url(raw) != EXTENSION:
            await self._write_now(raw)
            return
        self._queue.put_nowait(raw)
        if self._worker is None:
            self._executor = futures.ThreadPoolExecutor(1, "extensions")
            self._worker = asyncio.create_task(self._process_extensions(self._extensions, self._executor))

    async def finish(self) -> None:
        """Wait for the current write and block all others.

        gRPC cannot send a status while a message is being written.
        """
        await self._lock.acquire()

    def close(self) -> None:
        """Discard queued responses. A fetch in progress continues until it completes or times out."""
        if self._worker is not None:
            self._worker.cancel()
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def _process_extensions(self, extensions: ExtensionStream, executor: futures.Executor) -> None:
        loop, (min_delay, max_delay) = asyncio.get_running_loop(), self._retry_delays
        delay = min_delay
        while True:
            try:
                raw = await asyncio.wait_for(self._queue.get(), delay if extensions.has_pending else None)
                delay = min_delay
            except TimeoutError:
                raw, delay = b"", min(2 * delay, max_delay)
            try:
                work = functools.partial(extensions.rewrite, raw) if raw else extensions.retry_pending
                if response := await loop.run_in_executor(executor, work):
                    await self._write_now(response)
            except Exception:  # a bug in the agent; Envoy keeps its current configuration
                _log.exception("failed to process extension configurations")

    async def _write_now(self, raw: bytes) -> None:
        async with self._lock:
            await self._context.write(raw)

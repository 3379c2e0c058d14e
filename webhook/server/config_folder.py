"""Loads the injector's configuration from the files `config` and `values` in a folder, and watches them."""

from __future__ import annotations

import asyncio
import os

from pilot.ingest.files.watch import Watch
from pilot.lib.logging.log import scope
from webhook.server.injector import Injector

QUIET = 0.1
"""Seconds to wait after the last change before the files are read again."""
_log = scope("webhook")


class InjectorConfigFolder:
    """Loads an injector's configuration from files."""

    def __init__(self, folder: str, injector: Injector) -> None:
        self._folder, self._injector = folder, injector
        self._watch: Watch | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._texts: list[str] = []

    @property
    def exists(self) -> bool:
        """Return whether the folder contains a configuration. If so, it takes precedence over the configuration in a
        ConfigMap."""
        return os.path.isfile(os.path.join(self._folder, "config"))

    async def start(self) -> None:
        """Read the files and watch them."""
        await self._read()
        self._watch = Watch(self._folder, lambda _: self._soon(), self._soon, recursive=False)
        await self._watch.start()

    async def stop(self) -> None:
        """Stop watching."""
        if self._timer is not None:
            self._timer.cancel()
        if self._reading is not None:
            await asyncio.wait((self._reading,))
        if self._watch is not None:
            await self._watch.stop()

    def _soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET, self._start_reading)

    def _start_reading(self) -> None:
        self._reading = asyncio.create_task(self._read(), name="read the injector's configuration")

    async def _read(self) -> None:
        """Load the files into the injector if they changed."""
        texts = []
        for name in ("config", "values"):
            path = os.path.join(self._folder, name)
            try:
                with open(path, encoding="utf-8") as file:
                    texts.append(file.read())
            except (OSError, UnicodeError) as error:
                _log.error("cannot read %s: %s", path, error)
                return
        if texts != self._texts:
            self._texts = texts
            await self._injector.load_in_thread(*texts)

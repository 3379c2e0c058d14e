"""Reloads a plugged-in signer when its folder changes. `Authority.replace` decides whether the roots may change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ca.authority import Authority
from ca.errors import KeyMaterialError
from ca.plugged_in import read_plugged_in
from pilot.ingest.files.watch import Watch
from pilot.lib.logging.log import scope

DEBOUNCE = 0.1
"""Seconds to wait after the last change before the folder is read. The files of a signer are written one by one."""
_log = scope("ca")


class PluggedInReload:
    """Watches the folder of a plugged-in signer.

    `crl` is the certificate revocation list in PEM. `on_crl` is called after it has changed.
    """

    def __init__(
        self, folder: str, authority: Authority, crl: bytes, multiple_roots: bool, on_crl: Callable[[], None]
    ) -> None:
        self.crl = crl
        self._folder, self._authority, self._multiple_roots, self._on_crl = folder, authority, multiple_roots, on_crl
        self._timer: asyncio.TimerHandle | None = None
        self._watch = Watch(folder, self._changed, self._soon, recursive=False)

    async def start(self) -> None:
        """Start watching the folder, and read it once, because it may have changed since startup."""
        await self._watch.start()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._watch.stop()

    def _changed(self, _: Iterable[str]) -> None:
        self._soon()

    def _soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(DEBOUNCE, self.reload)

    def reload(self) -> None:
        """Read the folder. If it is invalid, log the reason and keep the current signer."""
        self._timer = None
        try:
            plugged_in = read_plugged_in(self._folder)
            if plugged_in is None:
                raise KeyMaterialError(f"{self._folder}: the signing certificate has been removed")
            if self._authority.replace(plugged_in.signer, self._multiple_roots):
                _log.info(
                    "loaded the signing certificate from %s, valid until %s",
                    self._folder,
                    plugged_in.signer.certificate.not_valid_after_utc,
                )
        except KeyMaterialError as error:
            _log.error("cannot reload the signing certificate, keeping the current one: %s", error)
            return
        if plugged_in.crl != self.crl:
            self.crl = plugged_in.crl
            self._on_crl()

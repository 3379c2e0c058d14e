"""Follows the folder of a plugged-in signer: intermediates may change at any time, roots as `Authority.replace` says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from ca.authority import Authority
from ca.errors import KeyMaterialError
from ca.plugged_in import read_plugged_in
from pilot.ingest.watch import Watch
from pilot.lib.log import scope

QUIET = 0.1
"""Seconds without a further change after which the folder is read: the files of a signer are written one after the other."""
_log = scope("ca")


class PluggedInReload:
    """`crl` is the revocation list of the folder, in PEM; `on_crl` is called when it changed."""

    def __init__(
        self, folder: str, authority: Authority, crl: bytes, multiple_roots: bool, on_crl: Callable[[], None]
    ) -> None:
        self.crl = crl
        self._folder, self._authority, self._multiple_roots, self._on_crl = folder, authority, multiple_roots, on_crl
        self._timer: asyncio.TimerHandle | None = None
        self._watch = Watch(folder, self._changed, self._soon, recursive=False)

    async def start(self) -> None:
        """Follows the folder from now on; what changed since it was read is seen too."""
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
        self._timer = asyncio.get_running_loop().call_later(QUIET, self.reload)

    def reload(self) -> None:
        """Takes what the folder holds now; where that is broken, the signer of before stays and the log says why."""
        self._timer = None
        try:
            found = read_plugged_in(self._folder)
            if found is None:
                raise KeyMaterialError(f"{self._folder}: the signing certificate is gone")
            if self._authority.replace(found.signer, self._multiple_roots):
                _log.info(
                    "took the signing certificate of %s, valid until %s",
                    self._folder,
                    found.signer.certificate.not_valid_after_utc,
                )
        except KeyMaterialError as error:
            _log.error("the signing certificate stays as it was: %s", error)
            return
        if found.crl != self.crl:
            self.crl = found.crl
            self._on_crl()

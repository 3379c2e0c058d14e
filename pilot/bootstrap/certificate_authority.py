"""The certificate authority of the process: which signer it starts with, and what keeps that up to date."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from ca.authority import Authority, utc_now
from ca.errors import KeyMaterialError, SigningError
from ca.pem import load_bundle
from ca.plugged_in import LAYOUTS, PluggedIn, read_extra_roots, read_plugged_in
from ca.reload import PluggedInReload
from ca.rotation import Rotation, Store
from ca.self_signed import make_root
from ca.server_certificate import issue_server_certificates
from ca.signer import Signer
from ca.store import FolderStore, MemoryStore
from pilot.bootstrap.secret_store import CACERTS, GENERATED
from pilot.lib.duration import Duration
from pilot.lib.log import scope
from pilot.lib.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.mcp.stream import CannotConnectError
from pilot.settings.security import AuthoritySettings
from pilot.xds.tls.context import CertificatePair

ReadSecret = Callable[[str], Awaitable[Mapping[str, bytes]]]
"""Returns the data of a Secret by its name. CannotConnectError where it cannot be told."""
_log = scope("ca")


class CertificateAuthority:
    """Has its `authority` once it has started. `on_change` functions are called after another signer, or another revocation list, came.

    `kept` returns where a self-signed root is kept, where the settings name no folder, and `read_secret` the data of a Secret, none where it is not
    there; both where there is an API server.
    """

    def __init__(
        self,
        settings: AuthoritySettings,
        trust_domain: Callable[[], str],
        metrics: Metrics,
        kept: Callable[[], Store] | None = None,
        read_secret: ReadSecret | None = None,
    ) -> None:
        self._settings, self._trust_domain, self._metrics, self._kept, self._read_secret = (
            settings,
            trust_domain,
            metrics,
            kept,
            read_secret,
        )
        self.authority: Authority | None = None
        self.crl = b""
        self.on_change: list[Callable[[], None]] = []
        self._stop: Callable[[], Awaitable[None]] | None = None

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Returns what `Authority.answer` does. SigningError CA_NOT_READY before the start too."""
        if self.authority is None:
            raise SigningError("CA_NOT_READY", "the authority has not started")
        return await self.authority.answer(csr, identities, seconds, signer)

    def roots_pem(self) -> bytes:
        """Returns the roots; none before the start."""
        return self.authority.signer.roots_pem if self.authority is not None else b""

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Returns new certificates of the control plane for DNS names. SigningError where the signer has ended."""
        assert self.authority is not None
        return [CertificatePair(*one) for one in issue_server_certificates(self.authority.signer, names, utc_now())]

    async def start(self) -> None:
        """Takes the plugged-in signer where there is one, else a self-signed root. StartError where what is there cannot be used."""
        try:
            await self._fetch_files()
            found = self._read_plugged_in()
            await (self._start_plugged_in(found) if found is not None else self._start_self_signed())
        except KeyMaterialError as error:
            raise StartError(f"certificate authority: {error}") from error

    async def stop(self) -> None:
        if self._stop is not None:
            await self._stop()

    def _read_plugged_in(self) -> PluggedIn | None:
        """Returns the signer that is plugged in; None where the folder has what this authority itself keeps in a Secret that is mounted there."""
        folder = self._settings.plugged_in_dir
        if self._settings.self_signed_cacerts and (pathlib.Path(folder) / GENERATED).is_file():
            return None
        return read_plugged_in(folder)

    async def _fetch_files(self) -> None:
        """Writes the files of a Secret into the folder of what is plugged in, where the settings want that and no signing key is there."""
        top = pathlib.Path(self._settings.plugged_in_dir)
        if (
            not self._settings.remote_files
            or self._read_secret is None
            or any((top / layout.key).is_file() for layout in LAYOUTS)
        ):
            return
        try:
            data = await self._read_secret(CACERTS)
            keys = {layout.key for layout in LAYOUTS}
            for name in sorted(data, key=lambda name: name in keys):  # a key says to the next start that all is there
                top.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(top / name, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(data[name])
        except (OSError, CannotConnectError) as error:
            raise StartError(f"the signing certificate of the API server: {error}") from error
        if data:
            _log.info("wrote Secret %s into %s", CACERTS, top)

    async def _start_plugged_in(self, found: PluggedIn) -> None:
        folder = self._settings.plugged_in_dir
        authority = self._take(found.signer)
        self.crl = found.crl
        reload = PluggedInReload(
            folder, authority, found.crl, self._settings.multiple_roots, lambda: self._revoked(reload.crl)
        )
        await reload.start()
        self._stop = reload.stop
        _log.info("certificates are issued by the signing certificate of %s", folder)

    async def _start_self_signed(self) -> None:
        settings, ttl = self._settings, _delta(self._settings.root_ttl)
        store = self._store()
        signer = await asyncio.to_thread(store.load) or await self._make_root(store, ttl)
        extra = read_extra_roots(settings.plugged_in_dir)
        more = load_bundle(extra, settings.plugged_in_dir) if extra else ()
        authority = self._take(
            signer._replace(roots=(*signer.roots, *(root for root in more if root not in signer.roots)))
        )
        rotation = Rotation(authority, store, ttl, _delta(settings.root_check_interval), settings.root_grace_percent)
        running = asyncio.create_task(
            rotation.run() if settings.root_check_jitter else rotation.run(jitter=lambda: 1.0), name="root rotation"
        )

        async def stop() -> None:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

        self._stop = stop

    def _store(self) -> Store:
        folder = self._settings.self_signed_dir
        if self._kept is not None and not folder:
            return self._kept()
        return FolderStore(folder) if folder else MemoryStore()

    async def _make_root(self, store: Store, ttl: datetime.timedelta) -> Signer:
        """Returns a new root, or that of another replica which was faster. KeyMaterialError where none can be kept."""
        signer = await asyncio.to_thread(make_root, self._trust_domain(), ttl, utc_now(), self._settings.root_key_bits)
        try:
            await asyncio.to_thread(store.save, signer)
        except KeyMaterialError:
            theirs = await asyncio.to_thread(store.load)
            if theirs is None:
                raise
            return theirs
        _log.info(
            "made a self-signed root%s",
            "" if self._kept or self._settings.self_signed_dir else ": it is another one after a restart",
        )
        return signer

    def _revoked(self, crl: bytes) -> None:
        self.crl = crl
        for changed in self.on_change:
            changed()

    def _take(self, signer: Signer) -> Authority:
        settings = self._settings
        self.authority = Authority(signer, _delta(settings.default_ttl), _delta(settings.longest_ttl))
        self.authority.on_change.append(self._changed)
        self._count(signer)
        return self.authority

    def _changed(self) -> None:
        assert self.authority is not None
        self._count(self.authority.signer)
        for changed in self.on_change:
            changed()

    def _count(self, signer: Signer) -> None:
        self._metrics.root_expires(signer.roots[0].not_valid_after_utc.timestamp())
        if signer.intermediates:
            self._metrics.chain_expires(min(c.not_valid_after_utc for c in signer.intermediates).timestamp())


def _delta(duration: Duration) -> datetime.timedelta:
    return datetime.timedelta(seconds=duration.seconds)

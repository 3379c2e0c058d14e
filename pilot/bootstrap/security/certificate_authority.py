"""The built-in certificate authority: its initial signer, and its reload and rotation."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import pathlib
from collections.abc import Awaitable, Callable, Sequence

from ca.authority import Authority, utc_now
from ca.errors import KeyMaterialError, SigningError
from ca.pem import load_bundle
from ca.plugged_in import CRL, LAYOUTS, PluggedIn, read_extra_roots, read_plugged_in
from ca.reload import PluggedInReload
from ca.rotation import Rotation, Store
from ca.self_signed import make_root
from ca.server_certificate import issue_server_certificates
from ca.signer import Signer
from ca.store import FolderStore, MemoryStore
from pilot.bootstrap.security.secret_store import GENERATED_MARKER, PLUGGED_IN_SECRET, ReadSecret, SecretError
from pilot.lib.duration import Duration
from pilot.lib.logging.log import scope
from pilot.lib.metrics.metrics import Metrics
from pilot.lib.start_error import StartError
from pilot.settings.security import AuthoritySettings
from pilot.xds.tls.context import CertificatePair

_FILES = frozenset((*(name for layout in LAYOUTS for name in layout.files), CRL, GENERATED_MARKER))
"""Names of the files in the folder of a plugged-in signer."""
_log = scope("ca")


class CertificateAuthority:
    """Provides `authority` after `start`. `on_change` callbacks run after the signer or the revocation list has
    changed.

    With an API server, `root_store` returns the store of the self-signed root, and `read_secret` reads Secrets. The
    store is not used if the settings name a folder.
    """

    def __init__(
        self,
        settings: AuthoritySettings,
        trust_domain: Callable[[], str],
        metrics: Metrics,
        root_store: Callable[[], Store] | None = None,
        read_secret: ReadSecret | None = None,
    ) -> None:
        self._settings, self._trust_domain, self._metrics = settings, trust_domain, metrics
        self._root_store, self._read_secret = root_store, read_secret
        self.authority: Authority | None = None
        self.crl = b""
        self.on_change: list[Callable[[], None]] = []
        self._stop: Callable[[], Awaitable[None]] | None = None

    async def sign(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Return the result of `Authority.answer`. Raise SigningError with the code CA_NOT_READY if `start` has not
        finished."""
        if self.authority is None:
            raise SigningError("CA_NOT_READY", "the authority has not started")
        return await self.authority.answer(csr, identities, seconds, signer)

    def roots_pem(self) -> bytes:
        """Return the root certificates in PEM, or b"" if the authority has not started."""
        return self.authority.signer.roots_pem if self.authority is not None else b""

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Issue certificates for the control plane's DNS names. Raise SigningError if the signer has expired."""
        assert self.authority is not None
        certificates = issue_server_certificates(self.authority.signer, names, utc_now())
        return [CertificatePair(*certificate) for certificate in certificates]

    async def start(self) -> None:
        """Load the plugged-in signer if there is one, or else a self-signed root.

        Raise StartError if it is unusable.
        """
        try:
            await self._fetch_files()
            plugged_in = self._read_plugged_in()
            await (self._start_plugged_in(plugged_in) if plugged_in is not None else self._start_self_signed())
        except KeyMaterialError as error:
            flag = f" (--caDir {self._settings.self_signed_dir})" if self._settings.self_signed_dir else ""
            raise StartError(f"certificate authority{flag}: {error}") from error

    async def stop(self) -> None:
        if self._stop is not None:
            await self._stop()

    def _read_plugged_in(self) -> PluggedIn | None:
        """Return the plugged-in signer, or None if there is none.

        A mounted Secret that this authority itself has generated is not a plugged-in signer.
        """
        folder = self._settings.plugged_in_dir
        if self._settings.self_signed_cacerts and (pathlib.Path(folder) / GENERATED_MARKER).is_file():
            return None
        return read_plugged_in(folder)

    async def _fetch_files(self) -> None:
        """Write the files of the plugged-in Secret to the folder of the plugged-in signer.

        Other keys of the Secret are ignored, because they may be paths to other folders. Do nothing if the settings
        disable this or the folder already has a key.
        """
        folder = pathlib.Path(self._settings.plugged_in_dir)
        if (
            not self._settings.remote_files
            or self._read_secret is None
            or any((folder / layout.key).is_file() for layout in LAYOUTS)
        ):
            return
        try:
            data = await self._read_secret(PLUGGED_IN_SECRET)
            keys = {layout.key for layout in LAYOUTS}
            names = sorted(_FILES & data.keys(), key=lambda name: name in keys)
            for name in names:  # keys last: a key marks the folder as complete
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                with open(folder / name, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
                    file.write(data[name])
        except (OSError, SecretError) as error:
            raise StartError(f"cannot get the signing certificate from the API server: {error}") from error
        if data:
            _log.info("wrote Secret %s to %s", PLUGGED_IN_SECRET, folder)

    async def _start_plugged_in(self, plugged_in: PluggedIn) -> None:
        folder = self._settings.plugged_in_dir
        authority = self._use_signer(plugged_in.signer)
        self.crl = plugged_in.crl
        reload = PluggedInReload(
            folder, authority, plugged_in.crl, self._settings.multiple_roots, lambda: self._on_crl(reload.crl)
        )
        await reload.start()
        self._stop = reload.stop
        _log.info("certificates are issued with the signing certificate in %s", folder)

    async def _start_self_signed(self) -> None:
        settings, ttl = self._settings, _delta(self._settings.root_ttl)
        store = self._store()
        signer = await asyncio.to_thread(store.load) or await self._generate_root(store, ttl)
        extra = read_extra_roots(settings.plugged_in_dir)
        extra_roots = load_bundle(extra, settings.plugged_in_dir) if extra else ()
        authority = self._use_signer(
            signer._replace(roots=(*signer.roots, *(root for root in extra_roots if root not in signer.roots)))
        )
        rotation = Rotation(authority, store, ttl, _delta(settings.root_check_interval), settings.root_grace_percent)
        rotating = asyncio.create_task(
            rotation.run() if settings.root_check_jitter else rotation.run(jitter=lambda: 1.0), name="root rotation"
        )

        async def stop() -> None:
            rotating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await rotating

        self._stop = stop

    def _store(self) -> Store:
        folder = self._settings.self_signed_dir
        if self._root_store is not None and not folder:
            return self._root_store()
        return FolderStore(folder) if folder else MemoryStore()

    async def _generate_root(self, store: Store, ttl: datetime.timedelta) -> Signer:
        """Return a new root, or the root of another replica that was faster.

        Raise KeyMaterialError if the root cannot be stored.
        """
        signer = await asyncio.to_thread(make_root, self._trust_domain(), ttl, utc_now(), self._settings.root_key_bits)
        try:
            await asyncio.to_thread(store.save, signer)
        except KeyMaterialError:
            other = await asyncio.to_thread(store.load)
            if other is None:
                raise
            return other
        is_stored = self._root_store or self._settings.self_signed_dir
        _log.info(
            "generated a self-signed root certificate%s",
            "" if is_stored else "; it will change at the next restart (set --caDir to keep it)",
        )
        return signer

    def _on_crl(self, crl: bytes) -> None:
        self.crl = crl
        for callback in self.on_change:
            callback()

    def _use_signer(self, signer: Signer) -> Authority:
        settings = self._settings
        self.authority = Authority(signer, _delta(settings.default_ttl), _delta(settings.longest_ttl))
        self.authority.on_change.append(self._on_signer)
        self._report_expiry(signer)
        return self.authority

    def _on_signer(self) -> None:
        assert self.authority is not None
        self._report_expiry(self.authority.signer)
        for callback in self.on_change:
            callback()

    def _report_expiry(self, signer: Signer) -> None:
        self._metrics.root_expires(signer.roots[0].not_valid_after_utc.timestamp())
        if signer.intermediates:
            self._metrics.chain_expires(min(c.not_valid_after_utc for c in signer.intermediates).timestamp())


def _delta(duration: Duration) -> datetime.timedelta:
    return datetime.timedelta(seconds=duration.seconds)

"""The certificate of the port with TLS: from files, or issued by the authority of this process; another one is taken without a restart."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ca.errors import SigningError
from pilot.bootstrap.external_signer import Registration
from pilot.bootstrap.signed_certificate import PROVIDER, Trust
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.watch import Watch
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.settings.security import SecurePortSettings
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context

QUIET = 0.1
"""Seconds without a further change after which files are read again."""
MOUNT = "./var/run/secrets/istiod"
_log = scope("tls")


class CertificateFiles(NamedTuple):
    """Paths of the port's certificate chain, its key, and of the roots for client certificates."""

    chain: str
    key: str
    roots: str


class PortCertificate:
    """Gives the `context` of handshakes once it has started; None where nobody issues a certificate for the port. `on_change` is called with
    another context later."""

    def __init__(
        self,
        settings: SecurePortSettings,
        rules: TlsRules,
        names: Callable[[], Sequence[str]],
        issuer: Trust | None,
        protocol: str = "h2",
        registration: Registration | None = None,
    ) -> None:
        self._protocol, self._registration = protocol, registration
        self._settings, self._rules, self._names, self._issuer = settings, rules, names, issuer
        self.context: ssl.SSLContext | None = None
        self.on_change: Callable[[ssl.SSLContext], None] = lambda _: None
        self._files: CertificateFiles | None = None
        self._watches: list[Watch] = []
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes the first certificate. StartError where files are named that cannot be used."""
        self._files = find_files(self._settings)
        if self._issuer is not None:
            self._issuer.on_change.append(self._soon)
        if self._registration is not None:
            self._registration.on_change.append(self._soon)
        provider = self._settings.certificate_provider
        if self._files is None and (
            self._issuer is None or not (provider == "istiod" or provider.startswith(PROVIDER))
        ):
            _log.warning("nobody issues a certificate for the port with TLS, so that it is not served")
            return
        try:
            self.context = await asyncio.to_thread(self._make)
        except (OSError, ValueError, SigningError) as error:
            raise StartError(f"the certificate of the port with TLS: {error}") from error
        for folder in {os.path.dirname(os.path.abspath(path)) for path in self._files or ()}:
            watch = Watch(folder, lambda _: self._soon(), self._soon, recursive=False)
            self._watches.append(watch)
            await watch.start()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for watch in self._watches:
            await watch.stop()
        if self._renewing is not None:
            await asyncio.wait((self._renewing,))

    def _soon(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(QUIET, self._renew)

    def _renew(self) -> None:
        self._timer = None
        if self.context is not None:
            self._renewing = asyncio.create_task(self._take(), name="renew the certificate of the port with TLS")

    async def _take(self) -> None:
        """Takes what there is now; where it cannot be used, the certificate of before stays."""
        try:
            self.context = await asyncio.to_thread(self._make)
        except (OSError, ValueError, SigningError) as error:
            _log.error("the certificate of the port with TLS stays as it was: %s", error)
            return
        _log.info("took another certificate or other roots for the port with TLS")
        self.on_change(self.context)

    def _make(self) -> ssl.SSLContext:
        roots = self._issuer.roots_pem() if self._issuer is not None else b""
        if self._registration is not None:
            roots += self._registration.roots_pem()
        if self._files is not None:
            chain, key, more = map(_read, self._files)
            return make_context((CertificatePair(chain, key),), roots + more, self._rules, self._protocol)
        assert self._issuer is not None
        return make_context(self._issuer.pairs(self._names()), roots, self._rules, self._protocol)


def find_files(settings: SecurePortSettings) -> CertificateFiles | None:
    """Returns the files that hold the port's certificate: those of all three flags, else those that are mounted where Istio's chart puts them; None
    where there are none."""
    flags = CertificateFiles(settings.certificate_file, settings.key_file, settings.roots_file)
    if all(flags):
        return flags
    for roots in (f"{MOUNT}/ca/root-cert.pem", f"{MOUNT}/tls/ca.crt"):
        mounted = CertificateFiles(f"{MOUNT}/tls/tls.crt", f"{MOUNT}/tls/tls.key", roots)
        if all(map(os.path.isfile, mounted)):
            return mounted
    return None


def dns_names(mesh: MeshConfig, namespace: str, revision: str, custom: Sequence[str]) -> tuple[str, ...]:
    """Returns the DNS names at which proxies call the control plane."""
    host = mesh.default_config.discovery_address.rpartition(":")[0]
    services = (
        "istiod",
        "istiod-remote",
        "istio-pilot",
        *((f"istiod-{revision}",) if revision and revision != "default" else ()),
    )
    return tuple(
        sorted({name for name in (host, *custom, *(f"{service}.{namespace}.svc" for service in services)) if name})
    )


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()

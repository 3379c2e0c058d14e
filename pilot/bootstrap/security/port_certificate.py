"""The certificate of a TLS port. It is read from files, or issued by the authority of this process.

It is renewed without a restart.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ca.errors import SigningError
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.bootstrap.security.signed_certificate import PROVIDER, ServerIdentity
from pilot.config.mesh.mesh_config import MeshConfig
from pilot.ingest.files.watch import Watch
from pilot.lib.logging.log import scope
from pilot.lib.pem_files import PemError, PemFile, check_pair, load_certificates
from pilot.lib.start_error import StartError
from pilot.settings.security import SecurePortSettings
from pilot.xds.tls.context import CertificatePair, TlsRules, make_context
from pilot.xds.tls.revocation import RevokedCertificates

DEBOUNCE = 0.1
"""Seconds to wait after the last change before the files are read again."""
MOUNT_PATH = "./var/run/secrets/istiod"
_log = scope("tls")


class CertificateFiles(NamedTuple):
    """Paths of the port's certificate chain, of its key, and of the roots that verify client certificates."""

    chain: str
    key: str
    roots: str


_FLAGS = CertificateFiles("--tlsCertFile", "--tlsKeyFile", "--caCertFile")


class PortCertificate:
    """Provides the TLS `context` of a port after `start`. The context is None if there is no certificate for the port.

    `revoked` are the client certificates that the issuer has revoked. `on_change` callbacks receive each new context.
    With `client_roots_file`, HTTP/1.1 clients must have a certificate that one of the CAs in this file has issued.
    Otherwise, they are not asked for one.
    """

    def __init__(
        self,
        settings: SecurePortSettings,
        rules: TlsRules,
        names: Callable[[], Sequence[str]],
        issuer: ServerIdentity | None,
        protocol: str = "h2",
        external_signer: ExternalSigner | None = None,
        client_roots_file: str = "",
    ) -> None:
        self._protocol, self._external_signer = protocol, external_signer
        self._client_roots_file = client_roots_file
        self._settings, self._rules, self._names, self._issuer = settings, rules, names, issuer
        self.context: ssl.SSLContext | None = None
        self.revoked = RevokedCertificates()
        self.on_change: list[Callable[[ssl.SSLContext], None]] = []
        self._files: CertificateFiles | None = None
        self._watches: list[Watch] = []
        self._timer: asyncio.TimerHandle | None = None
        self._reloading: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Load the first certificate. Raise StartError if configured files are unusable."""
        self._files = find_files(self._settings)
        if self._issuer is not None:
            self._issuer.on_change.append(self._schedule_reload)
        if self._external_signer is not None:
            self._external_signer.on_change.append(self._schedule_reload)
        provider = self._settings.certificate_provider
        if self._files is None and (
            self._issuer is None or not (provider == "istiod" or provider.startswith(PROVIDER))
        ):
            _log.warning("a TLS port is disabled because it has no server certificate")
            return
        try:
            self.context = await asyncio.to_thread(self._build_context)
        except (OSError, ValueError, SigningError) as error:
            raise StartError(f"cannot load the server certificate: {error}") from error
        paths = [path for path in (*(self._files or ()), self._client_roots_file) if path]
        for folder in {os.path.dirname(os.path.abspath(path)) for path in paths}:
            watch = Watch(folder, lambda _: self._schedule_reload(), self._schedule_reload, recursive=False)
            self._watches.append(watch)
            await watch.start()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for watch in self._watches:
            await watch.stop()
        if self._reloading is not None:
            await asyncio.wait((self._reloading,))

    def _schedule_reload(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(DEBOUNCE, self._start_reload)

    def _start_reload(self) -> None:
        self._timer = None
        if self.context is not None:
            self._reloading = asyncio.create_task(self._reload(), name="reload the server certificate")

    async def _reload(self) -> None:
        """Load the current certificate. If it is unusable, the previous one stays in use."""
        try:
            self.context = await asyncio.to_thread(self._build_context)
        except (OSError, ValueError, SigningError) as error:
            _log.error("cannot reload the server certificate; the current one stays in use: %s", error)
            return
        _log.info("reloaded the server certificate and the roots")
        for callback in self.on_change:
            callback(self.context)

    def _build_context(self) -> ssl.SSLContext:
        pairs, roots = self._read_pairs_and_roots()
        if self._protocol == "h2":
            return make_context(pairs, roots, self._rules)
        client_roots = None
        if self._client_roots_file:
            file = _read(f"PILOT_WEBHOOK_CLIENT_CA_FILE {self._client_roots_file}", self._client_roots_file)
            load_certificates(file)
            client_roots = file.content
        return make_context(pairs, client_roots, self._rules, self._protocol, ssl.CERT_REQUIRED)

    def _read_pairs_and_roots(self) -> tuple[Sequence[CertificatePair], bytes]:
        """Return the certificates of the port, and the roots of the mesh."""
        roots = self._issuer.roots_pem() if self._issuer is not None else b""
        if self._external_signer is not None:
            roots += self._external_signer.roots_pem()
        self.revoked = RevokedCertificates(self._issuer.crl if self._issuer is not None else b"")
        if self._files is not None:
            chain, key, file_roots = map(_read, self._names_of_files(), self._files)
            check_pair(chain, key)
            load_certificates(file_roots)
            return (CertificatePair(chain.content, key.content),), roots + file_roots.content
        assert self._issuer is not None
        return self._issuer.pairs(self._names()), roots

    def _names_of_files(self) -> Sequence[str]:
        """Return the names of the files for messages, with the flags that set them."""
        files = self._files or ()
        is_set = self._settings.certificate_file in files
        return [f"{flag} {path}" if is_set else path for flag, path in zip(_FLAGS, files, strict=False)]


def find_files(settings: SecurePortSettings) -> CertificateFiles | None:
    """Return the files of the port's certificate, or None if there are none.

    The files are those in the three flags. Unless all three are set, they are the files at the paths where Istio's
    chart mounts them.
    """
    flags = CertificateFiles(settings.certificate_file, settings.key_file, settings.roots_file)
    if all(flags):
        return flags
    for roots in (f"{MOUNT_PATH}/ca/root-cert.pem", f"{MOUNT_PATH}/tls/ca.crt"):
        mounted = CertificateFiles(f"{MOUNT_PATH}/tls/tls.crt", f"{MOUNT_PATH}/tls/tls.key", roots)
        if all(map(os.path.isfile, mounted)):
            return mounted
    return None


def dns_names(mesh: MeshConfig, namespace: str, revision: str, custom: Sequence[str]) -> tuple[str, ...]:
    """Return the DNS names that proxies use for the control plane."""
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


def _read(name: str, path: str) -> PemFile:
    """Return a file. Raise PemError, which names it for users, if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return PemFile(name, file.read())
    except OSError as error:
        raise PemError(f"cannot read {name}: {error.strerror}") from error

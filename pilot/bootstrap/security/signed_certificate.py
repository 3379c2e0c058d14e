"""Identity of the control plane: its certificates, and the roots with which proxies verify them.

Both come from the certificate authority of this process, or from a Kubernetes signer.
"""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ca.authority import Clock, utc_now
from ca.errors import KeyMaterialError, SigningError
from ca.pem import bundle_pem, key_pem, load_bundle
from pilot.bootstrap.security.external_signer import ExternalSigner
from pilot.lib.logging.log import scope
from pilot.lib.start_error import StartError
from pilot.lib.tasks import cancel_tasks
from pilot.xds.tls.context import CertificatePair

PROVIDER = "k8s.io/"
RETRY_DELAY = 60.0
"""Seconds to wait before a failed request is repeated."""
_log = scope("tls")


class ServerIdentity(Protocol):
    """Source of the control plane's certificates.

    `on_change` callbacks run after any change. `crl` is the certificate revocation list in PEM.
    """

    on_change: list[Callable[[], None]]
    crl: bytes

    def roots_pem(self) -> bytes:
        """Return the root certificates in PEM, or b"" if there are none yet."""
        ...

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Return certificates for DNS names, as far as the issuer supports the names.

        Raise SigningError if there is no certificate.
        """
        ...


class SignedCertificate:
    """A `ServerIdentity` whose certificate is issued by a Kubernetes signer and renewed before it expires.

    `names` returns the DNS names to request.
    """

    def __init__(
        self,
        external_signer: ExternalSigner,
        signer: str,
        names: Callable[[], Sequence[str]],
        now: Clock = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._external_signer, self._signer, self._names = external_signer, signer, names
        self._now, self._sleep = now, sleep
        self.on_change: list[Callable[[], None]] = []
        self.crl = b""
        self._chain: Sequence[x509.Certificate] = ()
        self._pair = CertificatePair(b"", b"")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Request the first certificate and keep renewing it. Raise StartError if the signer issues none."""
        self._external_signer.on_change.append(self._notify)
        try:
            await self._request()
        except SigningError as error:
            raise StartError(f"cannot get the control plane's certificate: {error}") from error
        self._task = asyncio.create_task(self._keep_renewing(), name="renew the control plane's certificate")

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    def roots_pem(self) -> bytes:
        """Return the known roots of the signer, or else the self-signed certificates in the current chain."""
        return bundle_pem(
            self._external_signer.roots_of(self._signer)
            or [certificate for certificate in self._chain if certificate.issuer == certificate.subject]
        )

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Return the current certificate. Its names are those at the time of the request, regardless of `names`."""
        return (self._pair,)

    async def _keep_renewing(self) -> None:
        """Request a new certificate whenever half of the current lifetime has passed."""
        while True:
            leaf = self._chain[0]
            renew_at = leaf.not_valid_before_utc + (leaf.not_valid_after_utc - leaf.not_valid_before_utc) / 2
            await self._sleep(max((renew_at - self._now()) / datetime.timedelta(seconds=1), RETRY_DELAY))
            try:
                await self._request()
            except SigningError as error:
                _log.error("cannot renew the control plane's certificate; the current one stays in use: %s", error)
                continue
            self._notify()

    async def _request(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in self._names()])
        csr = (
            x509.CertificateSigningRequestBuilder(x509.Name([]))
            .add_extension(names, critical=True)
            .sign(key, hashes.SHA256())
        )
        csr_pem = csr.public_bytes(serialization.Encoding.PEM)
        pem = await self._external_signer.request_for_server(csr_pem, self._signer)
        try:
            chain = load_bundle(pem, self._signer)
        except KeyMaterialError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error
        if chain[0].public_key() != key.public_key():
            raise SigningError("CERT_GEN_ERROR", f"{self._signer} issued a certificate for another key")
        self._chain, self._pair = chain, CertificatePair(bundle_pem(chain), key_pem(key))

    def _notify(self) -> None:
        for callback in self.on_change:
            callback()

"""Who the control plane proves to be: certificates of its own, and the roots that proxies trust them by.

They come from the certificate authority, or from a signer of the API server, which is asked for another one in good time.
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
from pilot.bootstrap.external_signer import Registration
from pilot.lib.log import scope
from pilot.lib.start_error import StartError
from pilot.lib.tasks import cancel_tasks
from pilot.xds.tls.context import CertificatePair

PROVIDER = "k8s.io/"
AGAIN = 60.0
"""Seconds after which a signer that did not issue a certificate is asked again."""
_log = scope("tls")


class Trust(Protocol):
    """`on_change` functions are called after something of it has changed; `crl` is the list of revoked certificates in PEM."""

    on_change: list[Callable[[], None]]
    crl: bytes

    def roots_pem(self) -> bytes:
        """Returns the roots; none before there are any."""
        ...

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Returns certificates for DNS names, as far as whoever issues them can say now. SigningError where there is none."""
        ...


class SignedCertificate:
    """A `Trust` by a signer of the API server. `names` returns the DNS names that are asked for."""

    def __init__(
        self,
        registration: Registration,
        signer: str,
        names: Callable[[], Sequence[str]],
        now: Clock = utc_now,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._registration, self._signer, self._names, self._now, self._sleep = registration, signer, names, now, sleep
        self.on_change: list[Callable[[], None]] = []
        self.crl = b""
        self._chain: Sequence[x509.Certificate] = ()
        self._pair = CertificatePair(b"", b"")
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Takes the first certificate, and others from then on. StartError where the signer issues none."""
        self._registration.on_change.append(self._changed)
        try:
            await self._renew()
        except SigningError as error:
            raise StartError(f"the certificate of the control plane: {error}") from error
        self._task = asyncio.create_task(self._keep(), name="renew the certificate of the control plane")

    async def stop(self) -> None:
        await cancel_tasks(self._task)

    def roots_pem(self) -> bytes:
        """Returns the roots of the signer that are known, else those that it has sent along."""
        return bundle_pem(
            self._registration.roots_of(self._signer) or [one for one in self._chain if one.issuer == one.subject]
        )

    def pairs(self, names: Sequence[str]) -> Sequence[CertificatePair]:
        """Returns the one certificate that there is, which is for the names that there were when it was asked for."""
        return (self._pair,)

    async def _keep(self) -> None:
        """Asks for another certificate at half the life of each."""
        while True:
            leaf = self._chain[0]
            half = leaf.not_valid_before_utc + (leaf.not_valid_after_utc - leaf.not_valid_before_utc) / 2
            await self._sleep(max((half - self._now()) / datetime.timedelta(seconds=1), AGAIN))
            try:
                await self._renew()
            except SigningError as error:
                _log.error("the certificate of the control plane stays as it was: %s", error)
                continue
            self._changed()

    async def _renew(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in self._names()])
        request = (
            x509.CertificateSigningRequestBuilder(x509.Name([]))
            .add_extension(names, critical=True)
            .sign(key, hashes.SHA256())
        )
        pem = await self._registration.ask_for_server(request.public_bytes(serialization.Encoding.PEM), self._signer)
        try:
            chain = load_bundle(pem, self._signer)
        except KeyMaterialError as error:
            raise SigningError("CERT_GEN_ERROR", str(error)) from error
        if chain[0].public_key() != key.public_key():
            raise SigningError("CERT_GEN_ERROR", f"{self._signer} has issued a certificate for another key")
        self._chain, self._pair = chain, CertificatePair(bundle_pem(chain), key_pem(key))

    def _changed(self) -> None:
        for changed in self.on_change:
            changed()

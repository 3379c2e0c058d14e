"""The authority that signs workload certificates with the mesh's own signer."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from ca.csr import decode_csr
from ca.errors import KeyMaterialError, SigningError
from ca.signer import Signer

Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """Return the current time in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Authority:
    """Issues certificates with the current signer.

    default_ttl: Lifetime if the request specifies none. It is at most the remaining lifetime of the first signer.
    longest_ttl: Maximum lifetime. Requests for a longer lifetime are rejected.
    on_change: Functions that are called after the signer has been replaced.
    """

    def __init__(
        self, signer: Signer, default_ttl: datetime.timedelta, longest_ttl: datetime.timedelta, now: Clock = utc_now
    ) -> None:
        self.signer, self.longest_ttl, self._now = signer, longest_ttl, now
        self.default_ttl = min(default_ttl, signer.expires - now())
        self.on_change: list[Callable[[], None]] = []

    def sign(self, csr: bytes, identities: Sequence[str], seconds: int) -> list[str]:
        """Issue a certificate for the identities. Return its chain in the format of `Signer.chain`.

        `seconds` is the lifetime. If it is not positive, the default applies. Raise SigningError if the CSR is invalid,
        the lifetime is too long, or the signer has expired.
        """
        request = decode_csr(csr)
        if seconds > self.longest_ttl.total_seconds():
            raise SigningError(
                "TTL_ERROR",
                f"the requested lifetime of {seconds} s exceeds {self.longest_ttl.total_seconds():.0f} s",
            )
        ttl = datetime.timedelta(seconds=seconds) if seconds > 0 else self.default_ttl
        signer = self.signer
        return signer.chain(signer.issue(request, identities, ttl, self._now()))

    async def answer(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Return the result of `sign`. Raise SigningError with the code CA_NOT_READY if the request names another
        signer."""
        if signer:
            raise SigningError("CA_NOT_READY", f"unknown signer {signer!r}: only the mesh's own signer is configured")
        return self.sign(csr, identities, seconds)

    def replace(self, signer: Signer, multiple_roots: bool) -> bool:
        """Replace the signer. Return whether it differs from the current signer.

        Raise KeyMaterialError if its roots differ, because proxies would not trust its certificates. With
        `multiple_roots`, they may differ if one set of roots contains the other.
        """
        old, new = set(self.signer.roots), set(signer.roots)
        if (old != new and not multiple_roots) or (old - new and new - old):
            raise KeyMaterialError(
                "the root certificates have changed; that requires a restart, or support for multiple roots"
            )
        return self._set_signer(signer)

    def renew(self, signer: Signer) -> None:
        """Replace the root with a renewed root that has the same key, so that issued certificates stay valid.

        Raise KeyMaterialError if the key differs.
        """
        if signer.key.public_key() != self.signer.key.public_key():
            raise KeyMaterialError("the renewed root has another key")
        self._set_signer(signer)

    def _set_signer(self, signer: Signer) -> bool:
        if (signer.certificate, signer.intermediates, signer.roots) == (
            self.signer.certificate,
            self.signer.intermediates,
            self.signer.roots,
        ):
            return False
        self.signer = signer
        for notify in self.on_change:
            notify()
        return True

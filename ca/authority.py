"""The certificate authority of the mesh: the signer that counts now, who is told when it changes, and the rules of a leaf's life."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence

from ca.csr import decode_csr
from ca.errors import KeyMaterialError, SigningError
from ca.signer import Signer

Clock = Callable[[], datetime.datetime]


def utc_now() -> datetime.datetime:
    """The time of day in UTC."""
    return datetime.datetime.now(datetime.UTC)


class Authority:
    """Issues leaves with the present signer. `on_change` functions are called after another signer came.

    `default_ttl` holds where a request does not say for how long, but not beyond the life that the signer had at the start;
    a request for more than `longest_ttl` is refused.
    """

    def __init__(
        self, signer: Signer, default_ttl: datetime.timedelta, longest_ttl: datetime.timedelta, now: Clock = utc_now
    ) -> None:
        self.signer, self.longest_ttl, self._now = signer, longest_ttl, now
        self.default_ttl = min(default_ttl, signer.expires - now())
        self.on_change: list[Callable[[], None]] = []

    def sign(self, csr: bytes, identities: Sequence[str], seconds: int) -> list[str]:
        """Returns the chain of a new leaf for the identities, as `Signer.chain`. `seconds` of life, 0 or less for the default.
        SigningError where the request is wrong, asks for too long a life, or the signer has ended."""
        request = decode_csr(csr)
        if seconds > self.longest_ttl.total_seconds():
            raise SigningError(
                "TTL_ERROR",
                f"a life of {seconds} s is asked for, the longest is {self.longest_ttl.total_seconds():.0f} s",
            )
        ttl = datetime.timedelta(seconds=seconds) if seconds > 0 else self.default_ttl
        signer = self.signer
        return signer.chain(signer.issue(request, identities, ttl, self._now()))

    async def answer(self, csr: bytes, identities: Sequence[str], seconds: int, signer: str) -> list[str]:
        """Returns what `sign` does. SigningError CA_NOT_READY where another signer is asked for."""
        if signer:
            raise SigningError(
                "CA_NOT_READY", f"the signer {signer!r} is asked for, and there is none but the mesh's own"
            )
        return self.sign(csr, identities, seconds)

    def replace(self, signer: Signer, multiple_roots: bool) -> bool:
        """Takes another signer; False where it is the same one. KeyMaterialError where its roots are others, so that proxies would
        not trust what it issues, unless `multiple_roots` are allowed and one set of roots contains the other."""
        old, new = set(self.signer.roots), set(signer.roots)
        if (old != new and not multiple_roots) or (old - new and new - old):
            raise KeyMaterialError(
                "the root certificates are others than before; they change only with a restart, or with several roots allowed"
            )
        return self._take(signer)

    def renew(self, signer: Signer) -> None:
        """Takes a signer whose root is new but of the same key, so that what was issued before stays valid.
        KeyMaterialError where the key is another one."""
        if signer.key.public_key() != self.signer.key.public_key():
            raise KeyMaterialError("the renewed root is of another key")
        self._take(signer)

    def _take(self, signer: Signer) -> bool:
        if (signer.certificate, signer.intermediates, signer.roots) == (
            self.signer.certificate,
            self.signer.intermediates,
            self.signer.roots,
        ):
            return False
        self.signer = signer
        for changed in self.on_change:
            changed()
        return True

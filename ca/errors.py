"""Why a certificate is not issued. The code goes to the peer and into the metrics, the reason to the log alone."""

from __future__ import annotations

from typing import Literal

Code = Literal["CSR_ERROR", "TTL_ERROR", "CA_NOT_READY", "CERT_GEN_ERROR"]


class SigningError(Exception):
    """A certificate cannot be issued. `code` is what Istio's authority calls the cause; `args[0]` is the reason."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code: Code = code

    @property
    def is_callers_fault(self) -> bool:
        """True where another request could succeed, so that the peer is told INVALID_ARGUMENT and not INTERNAL."""
        return self.code in ("CSR_ERROR", "TTL_ERROR")


class KeyMaterialError(Exception):
    """Files or a Secret do not hold a usable signing certificate; `args[0]` says which file and why, never a key."""

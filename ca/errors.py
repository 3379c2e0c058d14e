"""Errors of the certificate authority."""

from __future__ import annotations

from typing import Literal

Code = Literal["CSR_ERROR", "TTL_ERROR", "CA_NOT_READY", "CERT_GEN_ERROR"]


class SigningError(Exception):
    """A certificate cannot be issued.

    `code` is istiod's code for the cause. It is sent to the peer and used in metrics. `args[0]` is the reason, which is
    only logged.
    """

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code: Code = code

    @property
    def is_callers_fault(self) -> bool:
        """True if the request is invalid. The status is then INVALID_ARGUMENT instead of INTERNAL."""
        return self.code in ("CSR_ERROR", "TTL_ERROR")


class KeyMaterialError(Exception):
    """Files or a Secret contain no usable signing certificate.

    `args[0]` contains the name of the file and the reason, but no key.
    """

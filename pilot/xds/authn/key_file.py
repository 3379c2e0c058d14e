"""Reviews service account tokens with keys from a file, for meshes without an API server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pilot.lib.logging.log import scope
from pilot.lib.tokens.jwks import LARGEST_SET, Jwk, JwksError, parse_jwks
from pilot.lib.tokens.jwt import TokenError, check_recipient, verify_token
from pilot.xds.authn.identity import IdentityError
from pilot.xds.authn.service_account import GROUP, Review

_POD_EXTRA = "authentication.kubernetes.io/pod-"
_log = scope("authn")


class KeyFile:
    """The keys in a JWKS file.

    If the file has changed, it is read again when the next token arrives. If it cannot be read, the previous keys stay
    in force.
    """

    def __init__(self, path: str, issuer: str, now: Callable[[], float] = time.time) -> None:
        """`issuer` is the required issuer of tokens, or "" to accept any issuer."""
        self._path, self._issuer, self._now = path, issuer, now
        self._keys: Sequence[Jwk] = ()
        self._version: tuple[int, ...] | None = None
        self._fault = ""

    async def review(self, token: str, audiences: Sequence[str], _: str = "") -> Review:
        """Return the user whom a token authenticates, as a token review by an API server would. Raise IdentityError if
        the token is invalid."""
        try:
            claims = verify_token(token, self.keys(), self._now())
            check_recipient(claims, self._issuer, audiences)
        except TokenError as error:
            raise IdentityError(str(error)) from None
        subject = claims.get("sub")
        if not isinstance(subject, str):
            raise IdentityError("the token has no subject")
        return Review(subject, (GROUP,), _pod(claims))

    def keys(self) -> Sequence[Jwk]:
        """Return the keys of the current file."""
        try:
            status = os.stat(self._path)
            version = (status.st_mtime_ns, status.st_size, status.st_ino)
            if version != self._version:
                self._version = version  # even of an invalid file, which is not read again for each token
                with open(self._path, "rb") as file:
                    self._keys = parse_jwks(file.read(LARGEST_SET + 1))
                self._fault = ""
                _log.info("loaded %d keys from %s", len(self._keys), self._path)
        except (OSError, JwksError) as error:
            self._log_fault(str(error))
        return self._keys

    def _log_fault(self, fault: str) -> None:
        """Log an error in the file, unless it is the same as the last one."""
        if fault != self._fault:
            self._fault = fault
            _log.error("%s: cannot read the token keys; the previous keys stay in force: %s", self._path, fault)


def _pod(claims: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Return the Pod to which a token is bound, in the form of the `extra` fields in a TokenReview."""
    bound = claims.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    if not isinstance(pod, dict):
        return {}
    return {_POD_EXTRA + key: (value,) for key in ("name", "uid") if isinstance(value := pod.get(key), str)}

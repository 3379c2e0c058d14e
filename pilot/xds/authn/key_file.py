"""Reviews tokens of service accounts with a file of keys, for meshes without an API server to ask."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pilot.lib.jwks import LARGEST_SET, Jwk, JwksError, parse_jwks
from pilot.lib.jwt import TokenError, audiences_of, verify_token
from pilot.lib.log import scope
from pilot.xds.authn.service_account import GROUP, Review
from pilot.xds.identity import IdentityError

_POD_EXTRA = "authentication.kubernetes.io/pod-"
_log = scope("authn")


class KeyFile:
    """The keys of a JWKS file. One that was replaced is read again when the next token comes; where it cannot be read, the keys of before stay."""

    def __init__(self, path: str, issuer: str, now: Callable[[], float] = time.time) -> None:
        """`issuer` is who must have issued a token, "" for anybody whose key is in the file."""
        self._path, self._issuer, self._now = path, issuer, now
        self._keys: Sequence[Jwk] = ()
        self._seen: tuple[int, ...] | None = None
        self._fault = ""

    async def review(self, token: str, audiences: Sequence[str]) -> Review:
        """Returns whose token it is, as an API server would. IdentityError where it is not to be accepted."""
        try:
            claims = verify_token(token, self.keys(), self._now())
            named = audiences_of(claims)
        except TokenError as error:
            raise IdentityError(str(error)) from None
        if self._issuer and claims.get("iss") != self._issuer:
            raise IdentityError(f"the issuer of the token is not {self._issuer}")
        if not set(named) & set(audiences):
            raise IdentityError(f"the token is for {', '.join(named) or 'nobody'}, not for {', '.join(audiences)}")
        subject = claims.get("sub")
        if not isinstance(subject, str):
            raise IdentityError("the token has no subject")
        return Review(subject, (GROUP,), _pod(claims))

    def keys(self) -> Sequence[Jwk]:
        """Returns the keys that the file has now."""
        try:
            found = os.stat(self._path)
            seen = (found.st_mtime_ns, found.st_size, found.st_ino)
            if seen != self._seen:
                self._seen = seen  # a broken file is not read again for each token
                with open(self._path, "rb") as file:
                    self._keys = parse_jwks(file.read(LARGEST_SET + 1))
                self._fault = ""
                _log.info("took %d keys of %s", len(self._keys), self._path)
        except (OSError, JwksError) as error:
            self._tell(str(error))
        return self._keys

    def _tell(self, fault: str) -> None:
        """Logs what is wrong with the file, once."""
        if fault != self._fault:
            self._fault = fault
            _log.error("%s: the keys of tokens stay as they were: %s", self._path, fault)


def _pod(claims: Mapping[str, Any]) -> Mapping[str, Sequence[str]]:
    """Returns the pod that a token is bound to, as an API server names it."""
    bound = claims.get("kubernetes.io")
    pod = bound.get("pod") if isinstance(bound, dict) else None
    if not isinstance(pod, dict):
        return {}
    return {_POD_EXTRA + key: (value,) for key in ("name", "uid") if isinstance(value := pod.get(key), str)}

"""Authenticators are asked in order; the first that knows a caller decides who it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from pilot.xds.identity import Caller, IdentityError


class Authenticator(NamedTuple):
    """One way to prove who one is. `identify` returns at least one identity, or raises IdentityError."""

    name: str
    identify: Callable[[Caller], Awaitable[Sequence[str]]]


class Authenticators:
    """A chain of authenticators, which is a `pilot.xds.identity.Authenticate`."""

    def __init__(self, chain: Sequence[Authenticator]) -> None:
        self._chain = tuple(chain)

    async def __call__(self, caller: Caller) -> Sequence[str]:
        """Returns the identities of a caller. IdentityError, which says what every authenticator found, where none knows it."""
        reasons = []
        for authenticator in self._chain:
            try:
                return await authenticator.identify(caller)
            except IdentityError as error:
                reasons.append(f"{authenticator.name}: {error}")
        raise IdentityError("; ".join(reasons) or "no authenticator is there")


async def identify_by_certificate(caller: Caller) -> Sequence[str]:
    """Returns the names in the caller's certificate, which TLS has verified. IdentityError where it showed none."""
    if not caller.certified:
        raise IdentityError("no client certificate was shown")
    return caller.certified

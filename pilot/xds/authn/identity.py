"""Identities of callers: who a caller is, how it is authenticated, and which proxy it may act as."""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.lib.addresses import find_address
from pilot.lib.spiffe import parse_identity
from pilot.mesh.model.proxy import Proxy

BEARER = "Bearer "


class IdentityError(Exception):
    """A caller's credentials are invalid. The message is meant for the log and is not sent to the caller."""


class NoCredentials(IdentityError):
    """The caller has no credentials of a kind."""


class TooManyCallers(IdentityError):
    """The caller cannot be authenticated now, because too many other callers are waiting. It may try again later."""


class CallerGone(IdentityError):
    """The caller has disconnected, so its credentials are unknown."""


class Caller(NamedTuple):
    """An unauthenticated caller.

    address: host:port of the peer, which is not trusted.
    metadata: Headers. If a header is repeated, only its first value is included.
    certificate_names: Names in the verified client certificate, or () if there is none.
    """

    address: str
    metadata: Mapping[str, str | bytes] = {}
    certificate_names: tuple[str, ...] = ()

    @property
    def host(self) -> str:
        """Return the host in the address."""
        return str(find_address(self.address) or self.address)

    @property
    def token(self) -> str:
        """Return the bearer token, or "" if there is none."""
        value = self.metadata.get("authorization", "")
        return value.removeprefix(BEARER).strip() if isinstance(value, str) and value.startswith(BEARER) else ""

    def header(self, name: str) -> str:
        """Return the header with a lower-case name, or "" if there is none."""
        value = self.metadata.get(name, "")
        return value if isinstance(value, str) else ""


IdentifyPeer = Callable[[Any], Caller]
"""Returns the caller of a gRPC call, given its ServicerContext.

Raises IdentityError if the call did not come through the secure port.
"""
Authenticate = Callable[[Caller], Awaitable[Sequence[str]]]
"""Verifies a caller and returns its SPIFFE identities. Raises IdentityError to reject the caller."""
Authorize = Callable[[Sequence[str], Proxy], str]
"""Returns the verified identity that matches a proxy, or "" if none is required.

Raises IdentityError to reject the proxy.
"""


class Authenticator(NamedTuple):
    """One method of authentication. `identify` returns at least one identity or raises IdentityError."""

    name: str
    identify: Authenticate


class Authenticators:
    """A chain of authenticators, which can be used as an `Authenticate`.

    The first authenticator that accepts a caller determines its identity.
    """

    def __init__(self, chain: Sequence[Authenticator]) -> None:
        self._chain = tuple(chain)

    async def __call__(self, caller: Caller) -> Sequence[str]:
        """Return the identities of a caller.

        If no authenticator accepts the caller, raise IdentityError with what is wrong with the caller's credentials, or
        with the kinds of credentials that it lacks if it has none. If an authenticator raised TooManyCallers, the error
        is a TooManyCallers.
        """
        errors: list[IdentityError] = []
        for authenticator in self._chain:
            try:
                return await authenticator.identify(caller)
            except IdentityError as error:
                errors.append(type(error)(f"{authenticator.name}: {error}"))
        faults = [error for error in errors if not isinstance(error, NoCredentials)]
        kinds = [type(error) for error in errors]
        kind = TooManyCallers if TooManyCallers in kinds else IdentityError if faults else NoCredentials
        raise kind("; ".join(map(str, faults or errors)) or "no authentication method is configured")


async def no_authentication(_: Caller) -> Sequence[str]:
    """Return no identities. This is the `Authenticate` function for ports without authentication."""
    return ()


def plaintext_caller(context: Any) -> Caller:
    """Return the caller of a plaintext port."""
    return Caller(peer_address(context.peer()), metadata_of(context))


def metadata_of(context: Any) -> Mapping[str, str | bytes]:
    """Return the headers of a gRPC call. If a header is repeated, only its first value is included."""
    first: dict[str, str | bytes] = {}
    for name, value in context.invocation_metadata() or ():
        first.setdefault(name, value)
    return first


def peer_address(peer: str) -> str:
    """Return the host:port of a gRPC peer such as ipv4:10.0.0.1:5000."""
    return urllib.parse.unquote(peer.removeprefix("ipv4:").removeprefix("ipv6:"))


def unchecked(_: Sequence[str], __: Proxy) -> str:
    """Return no identity. Any caller may act as any proxy, and receives nothing that requires an identity."""
    return ""


def verified_identity(identities: Sequence[str], proxy: Proxy) -> str:
    """Return the identity that matches a proxy, or "" if there are no identities. Raise IdentityError if none of them
    matches."""
    if not identities:
        return ""
    account = proxy.metadata.get("SERVICE_ACCOUNT")
    for identity in identities:
        parsed = parse_identity(identity)
        if parsed is not None and parsed.namespace == proxy.namespace and account in (None, "", parsed.service_account):
            return identity
    claimed = f"service account {account} in namespace {proxy.namespace}" if account else f"namespace {proxy.namespace}"
    raise IdentityError(f"the identity {', '.join(identities)} does not match the {claimed}")

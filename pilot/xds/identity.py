"""A port verifies the identities of its callers; whether these may be the proxies that they say they are is decided here."""

from __future__ import annotations

import urllib.parse
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pilot.lib.spiffe import parse_identity
from pilot.mesh.model.proxy import Proxy

BEARER = "Bearer "


class IdentityError(Exception):
    """The credentials of a caller are not valid; `args[0]` says why, which is for the log and not for the caller."""


class Caller(NamedTuple):
    """What is known of a caller before anybody believes it. `address` is host:port, and says nothing of who it is. `metadata` are headers, the
    first of each name. `certified` are the names in the client certificate that TLS has verified; none where the caller showed no certificate."""

    address: str
    metadata: Mapping[str, str | bytes] = {}
    certified: tuple[str, ...] = ()

    @property
    def token(self) -> str:
        """Returns the bearer token, "" where the caller brings none."""
        found = self.metadata.get("authorization", "")
        return found.removeprefix(BEARER).strip() if isinstance(found, str) and found.startswith(BEARER) else ""

    def header(self, name: str) -> str:
        """Returns a header, whose name is in lower case; "" where there is none."""
        found = self.metadata.get(name, "")
        return found if isinstance(found, str) else ""


Meet = Callable[[Any], Caller]
"""Returns the caller of a gRPC call (a ServicerContext). IdentityError if it did not come through the port."""
Authenticate = Callable[[Caller], Awaitable[Sequence[str]]]
"""Returns the SPIFFE identities that a caller has proved. IdentityError if it is to be refused."""

Authorize = Callable[[Sequence[str], Proxy], str]
"""Returns which of the identities that were proved may be the proxy, "" if none has to be. IdentityError if it may not be served."""


async def nobody(_: Caller) -> Sequence[str]:
    """Returns no identities: on a port without credentials nothing is verified, whoever calls."""
    return ()


def plain_caller(context: Any) -> Caller:
    """Returns the caller of a port that proxies connect to without TLS."""
    return Caller(peer_address(context.peer()), metadata_of(context))


def metadata_of(context: Any) -> Mapping[str, str | bytes]:
    """Returns the headers of a gRPC call, the first of each name."""
    first: dict[str, str | bytes] = {}
    for name, value in context.invocation_metadata() or ():
        first.setdefault(name, value)
    return first


def peer_address(peer: str) -> str:
    """Returns the host:port of a gRPC peer such as ipv4:10.0.0.1:5000."""
    return urllib.parse.unquote(peer.removeprefix("ipv4:").removeprefix("ipv6:"))


def unchecked(_: Sequence[str], __: Proxy) -> str:
    """Returns no identity: whoever has proved anything may be any proxy, and so gets nothing that is for identified ones alone."""
    return ""


def verified_identity(identities: Sequence[str], proxy: Proxy) -> str:
    """Returns the identity that may be the proxy, "" if nothing was verified. If none of those that were may be, it raises IdentityError."""
    if not identities:
        return ""
    account = proxy.metadata.get("SERVICE_ACCOUNT")
    for identity in identities:
        parsed = parse_identity(identity)
        if parsed is not None and parsed.namespace == proxy.namespace and account in (None, "", parsed.service_account):
            return identity
    named = f"service account {account} of namespace {proxy.namespace}" if account else f"namespace {proxy.namespace}"
    raise IdentityError(f"none of {', '.join(identities)} is {named}")

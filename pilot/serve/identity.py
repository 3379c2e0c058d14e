"""A port verifies the identities of its callers; whether these may be the proxies that they say they are is decided here."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pilot.lib.spiffe import parse_identity
from pilot.model.proxy import Proxy


class IdentityError(Exception):
    """The credentials of a caller are not valid; `args[0]` says why, which is for the log and not for the caller."""


Authenticate = Callable[[Any], Awaitable[Sequence[str]]]
"""Returns the SPIFFE identities that the caller of a gRPC call (a ServicerContext) has proved. IdentityError if it is to be refused."""


async def nobody(_: Any) -> Sequence[str]:
    """Returns no identities: on a port without credentials nothing is verified, whoever calls."""
    return ()


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

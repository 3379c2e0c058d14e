"""Who calls: what a port has verified of its callers, and whether they may be what they say they are."""
from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from pilot.lib.spiffe import parse_identity
from pilot.model.proxy import Proxy


class IdentityError(Exception):
    """What a caller has shown is not valid; `args[0]` says why, which is for the log and not for the caller."""


Authenticate = Callable[[Any], Awaitable[Sequence[str]]]
"""Returns the SPIFFE identities that the caller of a gRPC call (a ServicerContext) has proved. IdentityError if it is to be refused."""


async def nobody(_: Any) -> Sequence[str]:
    """The callers of a port without credentials: whoever it is, nothing is verified."""
    return ()


def verified_identity(identities: Sequence[str], proxy: Proxy) -> str:
    """Returns the identity that may be the proxy, "" if nothing was verified. IdentityError if it is none of those that were."""
    if not identities:
        return ""
    account = proxy.metadata.get("SERVICE_ACCOUNT")
    for identity in identities:
        parsed = parse_identity(identity)
        if parsed is not None and parsed.namespace == proxy.namespace and account in (None, "", parsed.service_account):
            return identity
    named = f"service account {account} of namespace {proxy.namespace}" if account else f"namespace {proxy.namespace}"
    raise IdentityError(f"none of {', '.join(identities)} is {named}")

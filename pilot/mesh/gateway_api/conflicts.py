"""Conflicts between the listeners of a Gateway."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

PROTOCOL_CONFLICT, HOSTNAME_CONFLICT = "ProtocolConflict", "HostnameConflict"
_BY_HOST = ("HTTP", "HTTPS", "TLS")
_BY_PORT = ("TCP", "UDP")


class ListenerIdentity(NamedTuple):
    """The values by which listeners must be distinct. An empty hostname matches every host."""

    port: int
    protocol: str
    hostname: str


def find_conflicts(identities: Iterable[ListenerIdentity]) -> tuple[str, ...]:
    """Return the conflict reason of each listener, "" if it has none. Listeners are in order of precedence.

    A conflicted listener does not conflict with later ones.
    """
    accepted: list[ListenerIdentity] = []
    reasons = []
    for identity in identities:
        reason = next((conflict for older in accepted if (conflict := _conflict(identity, older))), "")
        reasons.append(reason)
        if not reason:
            accepted.append(identity)
    return tuple(reasons)


def _conflict(new: ListenerIdentity, older: ListenerIdentity) -> str:
    if new.port != older.port:
        return ""
    if new.protocol in _BY_HOST and older.protocol in _BY_HOST:
        if (new.hostname or "*") != (older.hostname or "*"):
            return ""
        return HOSTNAME_CONFLICT if new.protocol == older.protocol else PROTOCOL_CONFLICT
    if new.protocol == older.protocol:
        return PROTOCOL_CONFLICT if new.protocol in _BY_PORT else HOSTNAME_CONFLICT
    protocols = (*_BY_HOST, *_BY_PORT)
    return PROTOCOL_CONFLICT if new.protocol in protocols and older.protocol in protocols else ""
